/** The processes that run turns, and their beats. */
import type { Db } from "./db.js";
import type { Store } from "./store.js";

export type ProcessMethods = Pick<Store, "registerProcess" | "beat" | "listProcesses" | "forgetProcesses">;

export function processMethods(db: Db): ProcessMethods {
  return {
    async registerProcess({ incarnation, dataDirId }) {
      await db.writers.query(
        "insert into turnwire.processes (incarnation, data_dir_id) values ($1, $2) on conflict do nothing",
        [incarnation, dataDirId],
      );
    },
    async beat(incarnation) {
      const beaten = await db.writers.query(
        {
          name: "beat",
          text: "update turnwire.processes set beat = beat + 1 where incarnation = $1 returning 1",
        },
        [incarnation],
      );
      return beaten.length > 0;
    },
    async listProcesses(incarnation) {
      // An owner without a row never beats: it is found dead like any other.
      const rows = await db.writers.query<{ incarnation: string; data_dir_id: string; beat: string }>(
        {
          name: "list_processes",
          text: `
            select incarnation, data_dir_id, beat from turnwire.processes where incarnation <> $1
            union all
            select distinct t.owner, '', 0::bigint from turnwire.turns t
            where t.phase < 3 and t.owner <> $1 and not exists (select from turnwire.processes p where p.incarnation = t.owner)`,
        },
        [incarnation],
      );
      return rows.map((row) => ({
        incarnation: row.incarnation,
        dataDirId: row.data_dir_id,
        beat: BigInt(row.beat),
      }));
    },
    async forgetProcesses(incarnations) {
      await db.writers.query(
        `delete from turnwire.processes p where incarnation = any ($1)
         and not exists (select from turnwire.turns t where t.owner = p.incarnation and t.phase < 3)`,
        [incarnations],
      );
    },
  };
}
