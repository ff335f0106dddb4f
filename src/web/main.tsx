/** Where the page begins: mounts the app over the service that served it. */
import { createRoot } from "react-dom/client";
import { App } from "./app/app.js";
import "./style/tokens.css";
import "./style/base.css";

createRoot(document.getElementById("root")!).render(<App />);
