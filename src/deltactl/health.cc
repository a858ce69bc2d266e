// deltactl health: is a running deltad alive and ready? What a container's health check runs: it
// needs no shell and no curl in the image.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "client/error_message.h"
#include "client/http_call.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "deltactl/tls_options.h"

namespace deltad {
namespace {

struct Options {
  std::string server = "http://127.0.0.1:8080";
  double timeout = 5;
  bool live = false, json = false;
  client::TlsOptions tls;
};

Result<int> health(const Options& options) {
  ASSIGN_OR_RETURN(const client::ServerUrl url, client::parse_url(options.server));
  ASSIGN_OR_RETURN(const client::SocketAddress address, client::find_server(url, options.timeout));
  client::HttpCall call;
  call.path = options.live ? "/health" : "/ready";
  call.tls = options.tls;
  ASSIGN_OR_RETURN(const client::HttpAnswer answer,
                   client::call(url, address, call, options.timeout));
  const bool good = answer.status == 200;
  const char* word = options.live ? "alive" : "ready";
  std::string reason;
  if (!good) {
    simdjson::dom::parser parser;
    reason = fmt::format("{} answers {} with {}: {}", url.host_header(), call.path, answer.status,
                         client::error_message(parser, answer.body));
  }
  if (options.json)
    print_json({{word, good}, {"status", answer.status}, {"reason", reason}});
  else if (good)
    fmt::print("{}\n", word);
  else
    fmt::print(stderr, "deltactl: not {}: {}\n", word, reason);
  return good ? 0 : 1;
}

}  // namespace

void add_health(Command& app, int* exit_code) {
  Command* command = app.add_subcommand(
      "health", "Ask a running deltad whether it takes requests: exit code 0 if so, else 1");
  auto options = std::make_shared<Options>();
  command->add_option("--server", options->server, "http[s]://HOST:PORT")->show_default();
  command->add_option("--timeout", options->timeout, "Seconds to wait for the answer")
      ->range(0.1, 600.0)
      ->show_default();
  command->add_flag("--live", options->live,
                    "Only whether it is alive (/health), loaded or not, draining or not");
  add_tls_options(command, &options->tls);
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return health(*options); });
}

}  // namespace deltad
