#include "loadgen/models.h"

#include <fmt/core.h>
#include <simdjson.h>

#include "client/error_message.h"
#include "client/http_call.h"
#include "text/json_reader.h"

namespace deltad::loadgen {

Result<std::vector<std::string>> list_models(const client::ServerUrl& url,
                                             const client::SocketAddress& address,
                                             const std::string& api_key, double timeout_s) {
  client::HttpCall call;
  call.path = "/v1/models";
  call.api_key = api_key;
  ASSIGN_OR_RETURN(const client::HttpAnswer answer, client::call(url, address, call, timeout_s));
  simdjson::dom::parser parser;
  const std::string place = fmt::format("{}/v1/models", url.host_header());
  if (answer.status != 200) {
    return unavailable(fmt::format("{}: status {}: {}", place, answer.status,
                                   client::error_message(parser, answer.body)));
  }
  Result<simdjson::dom::element> document = parse_json(parser, answer.body);
  if (!document.ok()) return document.status().in(place);
  const Result<JsonReader> data = JsonReader(*document, "").member("data");
  if (!data.ok()) return data.status().in(place);
  const Result<simdjson::dom::array> list = data->array();
  if (!list.ok()) return list.status().in(place);
  std::vector<std::string> models;
  for (const simdjson::dom::element entry : *list) {
    const JsonReader model(entry, "data[]");
    const Result<std::string_view> id = model.string("id");
    if (!id.ok()) return id.status().in(place);
    models.emplace_back(*id);
  }
  if (models.empty()) return unavailable(place + " lists no model");
  return models;
}

}  // namespace deltad::loadgen
