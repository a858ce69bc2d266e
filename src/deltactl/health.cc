// deltactl health: whether a server takes requests, for container health checks and scripts.
#include <fmt/format.h>

#include <memory>

#include "client/error_message.h"
#include "client/http_call.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"

namespace deltad {
namespace {

struct Options {
  std::string server = "http://127.0.0.1:8080";
  double timeout_s = 5;
  bool alive = false, quiet = false;
};

Result<int> run(const Options& options) {
  ASSIGN_OR_RETURN(const client::ServerUrl url, client::parse_url(options.server));
  ASSIGN_OR_RETURN(const client::SocketAddress address,
                   client::find_server(url, options.timeout_s));
  client::HttpCall call;
  call.path = options.alive ? "/health" : "/ready";
  ASSIGN_OR_RETURN(const client::HttpAnswer answer,
                   client::call(url, address, call, options.timeout_s));
  if (answer.status != 200) {
    simdjson::dom::parser parser;
    return unavailable(fmt::format("{}: {}: {}", url.host_header(), answer.status,
                                   client::error_message(parser, answer.body)));
  }
  if (!options.quiet) fmt::print("{}\n", options.alive ? "alive" : "ready");
  return 0;
}

}  // namespace

void add_health(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "health", "Ask a server whether it takes requests: exit code 0 if so, 1 if not");
  command->add_option("--server", options->server, "The server's URL")->capture_default_str();
  command->add_option("--timeout", options->timeout_s, "Seconds to wait for an answer")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 3600.0));
  command->add_flag("--alive", options->alive, "Ask whether it lives, loading and draining too");
  command->add_flag("--quiet", options->quiet, "Print nothing when it does");
  run_command(command, exit_code, nullptr, [options] { return run(*options); });
}

}  // namespace deltad
