/** Where the page begins: finds the hub, mounts the app over the service that served it. */
import { createRoot } from "react-dom/client";
import { App } from "./app/app.js";
import { applyTheme } from "./app/theme.js";
import { PageData } from "./data/page-data.js";
import "./style/tokens.css";
import "./style/base.css";
import "./style/shell.css";
import "./style/sidebar.css";
import "./style/chat.css";
import "./style/documents.css";
import "./style/overlays.css";

applyTheme();
const page = await PageData.start();
createRoot(document.getElementById("root")!).render(<App page={page} />);
