#include "server/grpc/admin_json.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

namespace deltad {
namespace {

Json limit_json(const v1::RateLimit& in) {
  Json json = Json::object();
  if (in.has_requests_per_second()) json["requests_per_second"] = in.requests_per_second();
  if (in.has_burst()) json["burst"] = in.burst();
  if (in.has_tokens_per_minute()) json["tokens_per_minute"] = in.tokens_per_minute();
  return json;
}

// proto3 does not tell an empty string from none; HTTP's reader does, and words it better.
void set_text(const char* name, const std::string& text, Json* json) {
  if (!text.empty()) (*json)[name] = text;
}

}  // namespace

Json body_json(const v1::AddVariantRequest& in) {
  Json json = Json::object();
  set_text("name", in.name(), &json);
  set_text("path", in.path(), &json);
  json["replace"] = in.replace();
  if (in.has_rate_limit()) json["rate_limit"] = limit_json(in.rate_limit());
  return json;
}

Json body_json(const v1::ReplaceVariantRequest& in) {
  Json json = Json::object();
  set_text("path", in.path(), &json);
  if (in.has_rate_limit()) json["rate_limit"] = limit_json(in.rate_limit());
  return json;
}

Json body_json(const v1::SetRateLimitRequest& in) {
  return in.has_rate_limit() ? limit_json(in.rate_limit()) : Json();
}

Json body_json(const v1::AddPoolAdapterRequest& in) {
  Json json = Json::object();
  set_text("name", in.name(), &json);
  set_text("path", in.path(), &json);
  set_text("questions", in.questions(), &json);
  return json;
}

Json body_json(const v1::SetPoolBudgetRequest& in) { return Json{{"bytes", in.bytes()}}; }

ApiError fill_message(const Json& json, google::protobuf::Message* out) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(to_text(json), out, options);
  if (status.ok()) return {};
  return api_error(internal_error("an admin answer that does not fit its message"));
}

}  // namespace deltad
