#include "eval/server_model.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "client/error_message.h"
#include "client/http_call.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kTimeout = 600;  // seconds until an answer is whole

}  // namespace

Result<ServerModel> ServerModel::find(const std::string& url, std::string model,
                                      std::string api_key, client::TlsOptions tls) {
  ServerModel server;
  ASSIGN_OR_RETURN(server.url, client::parse_url(url));
  ASSIGN_OR_RETURN(server.address, client::find_server(server.url, kTimeout));
  server.model = std::move(model);
  server.api_key = std::move(api_key);
  server.tls = std::move(tls);
  return server;
}

Result<Json> ServerModel::post(const std::string& path, Json body) const {
  body["model"] = model;
  client::HttpCall call;
  call.method = "POST";
  call.path = path;
  call.api_key = api_key;
  call.tls = tls;
  call.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  ASSIGN_OR_RETURN(const client::HttpAnswer answer, client::call(url, address, call, kTimeout));
  if (answer.status != 200) {
    simdjson::dom::parser parser;
    return Status(answer.status == 404 ? Code::kNotFound : Code::kInternal,
                  fmt::format("{}{}: status {}: {}", url.host_header(), path, answer.status,
                              client::error_message(parser, answer.body)));
  }
  Json json = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return lacks(path, "JSON object");
  return json;
}

Status ServerModel::lacks(const std::string& path, const std::string& what) const {
  return internal_error(fmt::format("{}{}: its answer has no {}", url.host_header(), path, what));
}

}  // namespace deltad
