/**
 * Finds the validation rules that stand on a message and makes a value that breaks each of them, so that rules that are
 * added later are tested without a new test.
 */
import type { DescField, DescMessage, Message } from "@bufbuild/protobuf";
import { create, getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { createValidator } from "@bufbuild/protovalidate";
import type { FieldRules } from "../../gen/buf/validate/validate_pb.js";
import { field as fieldOption, oneof as oneofOption } from "../../gen/buf/validate/validate_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";

const validator = createValidator();

/** "path [rule]" of everything that is wrong with a message; empty = valid. */
export function violations(schema: DescMessage, message: Message): string[] {
  const result = validator.validate(schema, message);
  switch (result.kind) {
    case "valid":
      return [];
    case "invalid":
      return result.violations.map((violation) => `${fieldPath(violation.toString())} [${violation.ruleId}]`);
    case "error":
      throw result.error;
  }
}

/** A violation without a field of its own (a rule of the whole message) names the field in its words. */
function fieldPath(violation: string): string {
  return violation.slice(0, Math.max(violation.indexOf(": "), 0));
}

/** A request that breaks each rule that stands on a message or on what it can hold, one after the other. */
export function* breaches(schema: DescMessage): Generator<Breach> {
  yield* breachesAt({ root: schema, path: "", wrap: (message) => message }, schema, []);
}

/** A rule where it stands, with a request that breaks it and what must be reported. */
export interface Breach {
  readonly title: string;
  readonly schema: DescMessage;
  readonly message: Message;
  readonly path: string;
  readonly rule: RegExp;
}

interface Place {
  readonly root: DescMessage;
  readonly path: string;
  /** A root message whose value at this place is the given one. */
  readonly wrap: (inner: Message) => Message;
}

function* breachesAt(place: Place, desc: DescMessage, seen: readonly DescMessage[]): Generator<Breach> {
  if (seen.includes(desc)) return;
  const build = (field: DescField, value: unknown): Message => {
    const message = create(desc);
    setField(message, field, value);
    return place.wrap(message);
  };
  for (const field of desc.fields) {
    const path = place.path === "" ? field.name : `${place.path}.${field.name}`;
    if (hasOption(field, fieldOption)) {
      for (const { suffix, rule, value } of breakingValues(field, getOption(field, fieldOption))) {
        const title = `${place.root.name} ${path}${suffix} ${rule.source}`;
        yield {
          title,
          schema: place.root,
          message: value === UNSET ? place.wrap(create(desc)) : build(field, value),
          path: path + suffix,
          rule,
        };
      }
    }
    if (
      field.message &&
      field.message.typeName.startsWith("turnwire.") &&
      field.message !== PacketSchema &&
      field.fieldKind !== "map"
    ) {
      const isList = field.fieldKind === "list";
      const inner: Place = {
        root: place.root,
        path: isList ? `${path}[0]` : path,
        wrap: (message) => build(field, isList ? [message] : message),
      };
      yield* breachesAt(inner, field.message, [...seen, desc]);
    }
  }
  for (const oneof of desc.oneofs) {
    if (hasOption(oneof, oneofOption) && getOption(oneof, oneofOption).required) {
      const path = place.path === "" ? oneof.name : `${place.path}.${oneof.name}`;
      yield {
        title: `${place.root.name} ${path} required`,
        schema: place.root,
        message: place.wrap(create(desc)),
        path,
        rule: /^required$/,
      };
    }
  }
}

function setField(message: Message, field: DescField, value: unknown): void {
  const target = message as unknown as Record<string, unknown>;
  if (field.oneof && !field.proto.proto3Optional)
    target[field.oneof.localName] = { case: field.localName, value };
  else target[field.localName] = value instanceof Map ? Object.fromEntries(value) : value;
}

const UNSET = Symbol("the field is not set");
interface Breaking {
  readonly suffix: string;
  readonly rule: RegExp;
  readonly value: unknown;
}

/** Values that break each single rule of a field. Throws on a kind of rule that it does not know: teach it. */
function breakingValues(field: DescField, rules: FieldRules): Breaking[] {
  const found: Breaking[] = rules.required ? [{ suffix: "", rule: /^required$/, value: UNSET }] : [];
  const { type } = rules;
  switch (type.case) {
    case undefined:
      if (found.length === 0) throw new Error(`${field.toString()} has an empty rule`);
      return found;
    case "repeated": {
      const { minItems, maxItems, items } = type.value;
      const item = (i: number): unknown => (field.message ? create(field.message) : field.enum ? 1 : `i${i}`);
      const some = (count: number): unknown[] => Array.from({ length: count }, (_, i) => item(i));
      if (has(type.value, "maxItems"))
        found.push({ suffix: "", rule: /^repeated\.max_items$/, value: some(Number(maxItems) + 1) });
      if (minItems > 0n)
        found.push({ suffix: "", rule: /^repeated\.min_items$/, value: some(Number(minItems) - 1) });
      if (items)
        for (const each of breakingValues(field, items))
          found.push({ suffix: "[0]", rule: each.rule, value: [each.value] });
      return found;
    }
    case "map": {
      const { maxPairs, keys, values } = type.value;
      const value = (): unknown => (field.scalar === ScalarType.BOOL ? true : "v");
      found.push({
        suffix: "",
        rule: /^map\.max_pairs$/,
        value: new Map(Array.from({ length: Number(maxPairs) + 1 }, (_, i) => [`k${i}`, value()])),
      });
      for (const each of keys ? breakingValues(field, keys) : []) {
        found.push({
          suffix: `[${JSON.stringify(each.value)}]`,
          rule: each.rule,
          value: new Map([[each.value, value()]]),
        });
      }
      for (const each of values ? breakingValues(field, values) : [])
        found.push({ suffix: '["k"]', rule: each.rule, value: new Map([["k", each.value]]) });
      return found;
    }
    case "string": {
      const rule = type.value;
      if (has(rule, "maxBytes"))
        found.push({ suffix: "", rule: /^string\.max_bytes$/, value: "x".repeat(Number(rule.maxBytes) + 1) });
      if (has(rule, "minLen")) found.push({ suffix: "", rule: /^string\.min_len$/, value: "" });
      if (has(rule, "pattern")) found.push({ suffix: "", rule: /^string\.pattern$/, value: "\n" });
      return found;
    }
    case "bytes":
      return [
        ...found,
        { suffix: "", rule: /^bytes\.max_len$/, value: new Uint8Array(Number(type.value.maxLen) + 1) },
      ];
    case "enum":
      found.push({ suffix: "", rule: /^enum\.defined_only$/, value: 9999 });
      if (type.value.notIn.length > 0)
        found.push({ suffix: "", rule: /^enum\.not_in$/, value: type.value.notIn[0] });
      return found;
    case "bool":
      return [...found, { suffix: "", rule: /^bool\.const$/, value: !type.value.const }];
    case "uint32":
    case "int32":
    case "double": {
      const { greaterThan, lessThan } = type.value;
      const rule = new RegExp(`^${type.case}\\.(gte_lte|lte)$`);
      if (lessThan.case === "lte") found.push({ suffix: "", rule, value: lessThan.value + 1 });
      if (greaterThan.case === "gte") found.push({ suffix: "", rule, value: greaterThan.value - 1 });
      return found;
    }
    case "duration":
      return [...found, { suffix: "", rule: /^duration\.gt_lte$/, value: create(field.message!) }];
    default:
      throw new Error(`${field.toString()}: no breaking value is known for ${type.case} rules`);
  }
}

/** True when a rule is set at all. */
export function has(rules: Message, localName: string): boolean {
  return Object.hasOwn(rules, localName);
}
