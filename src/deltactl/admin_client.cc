#include "deltactl/admin_client.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/ascii.h"
#include "client/error_message.h"
#include "client/http_call.h"
#include "deltactl/tls_options.h"

namespace deltad {
namespace {

constexpr double kTimeout = 30, kChangeTimeout = 900;  // seconds; a file may be read whole

}  // namespace

std::string percent_encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain = is_ascii_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Status status_of(int http_status, std::string message) {
  switch (http_status) {
    case 400:
    case 401:
    case 403:
    case 405:
      return invalid_argument(std::move(message));
    case 404:
      return not_found(std::move(message));
    case 409:
      return conflict(std::move(message));
    case 507:
      return resource_exhausted(std::move(message));
    case 429:
    case 503:
    case 504:
      return unavailable(std::move(message));
    default:
      return internal_error(fmt::format("status {}: {}", http_status, message));
  }
}

Result<Json> AdminClient::ask(std::string method, std::string path, const Json& body) const {
  ASSIGN_OR_RETURN(const client::ServerUrl url, client::parse_url(server));
  ASSIGN_OR_RETURN(const client::SocketAddress address, client::find_server(url, kTimeout));
  client::HttpCall call;
  call.method = std::move(method);
  call.path = std::move(path);
  call.api_key = api_key;
  call.tls = tls;
  if (!body.is_null()) call.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  ASSIGN_OR_RETURN(const client::HttpAnswer answer,
                   client::call(url, address, call, body.is_null() ? kTimeout : kChangeTimeout));
  if (answer.status < 200 || answer.status > 299) {
    simdjson::dom::parser parser;
    return status_of(answer.status, client::error_message(parser, answer.body));
  }
  Json json = Json::parse(answer.body, nullptr, false);
  if (json.is_discarded())
    return internal_error(fmt::format("{} does not answer with JSON", url.host_header()));
  return json;
}

std::string path_for_server(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

size_t width_of(const Json& list, const char* key, size_t least) {
  for (const Json& item : list) least = std::max(least, item.at(key).get<std::string>().size());
  return least;
}

void add_admin_options(Command* command, AdminClient* client) {
  command
      ->add_option("--server", client->server,
                   "The admin listener: http[s]://HOST:PORT (server.admin.listen)")
      ->required();
  command->add_option("--api-key", client->api_key, "Its key (default: $DELTAD_ADMIN_KEY)")
      ->environment("DELTAD_ADMIN_KEY");
  add_tls_options(command, &client->tls);
}

}  // namespace deltad
