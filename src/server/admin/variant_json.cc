#include "server/admin/variant_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace deltad {
namespace {

double milli(double value) { return std::round(value * 1e3) / 1e3; }

Json tier_json(const CacheTierInfo& tier) {
  Json json;
  json["budget_bytes"] = tier.budget;
  json["used_bytes"] = tier.used;
  json["loading_bytes"] = tier.loading;
  return json;
}

}  // namespace

Json limit_json(const VariantLimit& limit) {
  if (!limit.any()) return {};
  Json json;
  json["requests_per_second"] =
      limit.requests_per_second > 0 ? Json(limit.requests_per_second) : Json();
  json["burst"] = limit.requests_per_second > 0 ? Json(limit.burst_or_default()) : Json();
  json["tokens_per_minute"] = limit.tokens_per_minute > 0 ? Json(limit.tokens_per_minute) : Json();
  return json;
}

Json variant_json(const VariantInfo& info) {
  Json json;
  json["object"] = "variant";
  json["name"] = info.name;
  json["path"] = info.path;
  json["member"] = info.member.empty() ? Json() : Json(info.member);
  json["state"] = variant_state_name(info.state);
  json["error"] = info.error.empty() ? Json() : Json(info.error);
  json["retry_seconds"] = info.error.empty() ? Json() : Json(milli(info.retry_seconds));
  json["digest"] = info.digest.empty() ? Json() : Json(info.digest);
  json["bytes"] = info.bytes;
  json["pinned"] = info.pinned;
  json["in_flight"] = info.in_flight;
  json["waiting"] = info.waiting;
  json["requests_per_second"] = milli(info.rate);
  json["idle_seconds"] = info.idle_seconds < 0 ? Json() : Json(milli(info.idle_seconds));
  json["loads"] = info.loads;
  json["load_seconds"] = info.loads == 0 ? Json() : Json(milli(info.load_seconds));
  json["promotions"] = info.promotions;
  json["promotion_seconds"] = info.promotions == 0 ? Json() : Json(milli(info.promotion_seconds));
  json["created"] = info.created;
  json["rate_limit"] = limit_json(info.limit);
  return json;
}

Json cache_json(const CacheTierInfo& device, const CacheTierInfo& host) {
  Json json;
  json["object"] = "cache";
  json["device"] = tier_json(device);
  json["host"] = tier_json(host);
  return json;
}

}  // namespace deltad
