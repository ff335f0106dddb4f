import type { ModelConfig, RouteConfig } from "../config.js";

/** A route as it is listed: what all its models can do. */
export function routeAsModel(route: RouteConfig, behind: readonly ModelConfig[]): ModelConfig {
  const least = (values: readonly number[]): number => {
    const known = values.filter((value) => value > 0);
    return known.length === 0 ? 0 : Math.min(...known);
  };
  const all = (flags: readonly (boolean | undefined)[]): boolean | undefined =>
    flags.every((flag) => flag === flags[0]) ? flags[0] : flags.includes(false) ? false : undefined;
  const shared = behind[0]?.modalities.filter((name) =>
    behind.every(({ modalities }) => modalities.includes(name)),
  );
  return {
    ...{
      id: route.id,
      provider: "",
      upstreamModel: "",
      aliases: route.aliases,
      displayName: route.displayName,
    },
    ...{
      ownedBy: "turnwire",
      reasoningTags: [],
      startsInReasoning: false,
      access: route.access,
      price: undefined,
      fallbacks: [],
    },
    contextTokens: least(behind.map(({ contextTokens }) => contextTokens)),
    maxOutputTokens: least(behind.map(({ maxOutputTokens }) => maxOutputTokens)),
    modalities: shared ?? [],
    reasoning: all(behind.map(({ reasoning }) => reasoning)),
    tools: all(behind.map(({ tools }) => tools)),
  };
}
