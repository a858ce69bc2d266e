#include "server/observe/otlp_json.h"

#include <nlohmann/json.hpp>

#include "base/version.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStatusError = 2;
constexpr uint32_t kSampledFlag = 1;

struct ValueJson {
  Json operator()(const std::string& text) const { return Json{{"stringValue", text}}; }
  Json operator()(int64_t number) const { return Json{{"intValue", std::to_string(number)}}; }
  Json operator()(double number) const { return Json{{"doubleValue", number}}; }
  Json operator()(const std::vector<std::string>& texts) const {
    Json values = Json::array();
    for (const std::string& text : texts) values.push_back((*this)(text));
    return Json{{"arrayValue", Json{{"values", std::move(values)}}}};
  }
};

Json attribute(std::string_view key, const SpanValue& value) {
  return Json{{"key", key}, {"value", std::visit(ValueJson(), value)}};
}

Json span_json(const Span& span) {
  Json json;
  json["traceId"] = hex_of(span.context.trace);
  json["spanId"] = hex_of(span.context.span);
  if (!span.context.state.empty()) json["traceState"] = span.context.state;
  if (span.parent != SpanId{}) json["parentSpanId"] = hex_of(span.parent);
  json["flags"] = kSampledFlag;
  json["name"] = span.name;
  json["kind"] = static_cast<int>(span.kind);
  json["startTimeUnixNano"] = std::to_string(span.start_ns);
  json["endTimeUnixNano"] = std::to_string(span.end_ns);
  json["attributes"] = Json::array();
  for (const auto& [key, value] : span.attributes)
    json["attributes"].push_back(attribute(key, value));
  json["status"] = Json::object();
  if (span.failed) {
    json["status"]["code"] = kStatusError;
    if (!span.message.empty()) json["status"]["message"] = span.message;
  }
  return json;
}

}  // namespace

std::string otlp_json(const std::vector<Span>& spans, const std::string& service) {
  Json resource;
  resource["attributes"] = Json::array(
      {attribute("service.name", service), attribute("service.version", std::string(kVersion))});
  Json scope;
  scope["scope"] = Json{{"name", "deltad"}, {"version", kVersion}};
  scope["spans"] = Json::array();
  for (const Span& span : spans) scope["spans"].push_back(span_json(span));
  Json all;
  all["resource"] = std::move(resource);
  all["scopeSpans"] = Json::array({std::move(scope)});
  return Json{{"resourceSpans", Json::array({std::move(all)})}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace deltad
