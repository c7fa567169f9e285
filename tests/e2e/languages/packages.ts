// One use of each package, by the message's body. `npm_packages.rs` builds and runs it.

import { sha256 } from "@noble/hashes/sha2.js";
import { Ajv } from "ajv";
import axios from "axios";
import { parse as parseCsv } from "csv-parse/browser/esm/sync";
import { addDays } from "date-fns";
import dayjs from "dayjs";
import { Decimal } from "decimal.js";
import type { Handler } from "dispatcher-guest";
import { XMLParser } from "fast-xml-parser";
import Handlebars from "handlebars";
import _ from "lodash";
import { nanoid } from "nanoid";
import pLimit from "p-limit";
import { v4 } from "uuid";
import { parse as parseYaml } from "yaml";
import { z } from "zod";

const Order = z.object({ amount: z.number() });
const isOrder = new Ajv().compile({ type: "object", required: ["amount"] });

const tried: Record<string, (url: string) => boolean | Promise<boolean>> = {
  zod: () => Order.parse({ amount: 7 }).amount === 7 && !Order.safeParse({}).success,
  ajv: () => isOrder({ amount: 7 }) && !isOrder({}),
  "date-fns": () => addDays(new Date(Date.UTC(2026, 10, 28)), 3).getUTCDate() === 1,
  dayjs: () => dayjs("2026-11-28").add(1, "week").format("DD.MM.YYYY") === "05.12.2026",
  lodash: () => _.isEqual(_.chunk([1, 2, 3], 2), [[1, 2], [3]]),
  uuid: () => v4().length === 36,
  nanoid: () => nanoid().length === 21,
  "decimal.js": () => new Decimal("0.1").plus("0.2").equals("0.3"),
  "fast-xml-parser": () => new XMLParser().parse("<a><b>1</b></a>").a.b === 1,
  yaml: () => parseYaml("a: [1, 2]").a[1] === 2,
  "csv-parse": () => parseCsv("a,b\n1,2\n")[1]?.[1] === "2",
  handlebars: () => Handlebars.compile("hello {{name}}")({ name: "Ada" }) === "hello Ada",
  "@noble/hashes": () => sha256(new Uint8Array([1])).length === 32,
  "p-limit": async () => (await Promise.all([1, 2].map((n) => pLimit(1)(async () => n)))).length === 2,
  axios: async (url) => (await axios.post(url, { amount: 7 })).status === 200,
};

export const handler: Handler = {
  async handle(message) {
    const [name = "", url = ""] = String(message.body).split(" ");
    console.log(`${name} ${await tried[name]?.(url)}`);
  },
};
