// AdminClient: the admin API of a running deltad, for the subcommands that change it. Main thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/status.h"
#include "client/tls.h"
#include "deltactl/console.h"
#include "manual/command.h"

namespace deltad {

using Json = nlohmann::ordered_json;

struct AdminClient {
  std::string server, api_key;
  client::TlsOptions tls;

  // The answer's document, or why there is none.
  Result<Json> ask(std::string method, std::string path, const Json& body = nullptr) const;
};

// --server, --api-key and those of TLS.
void add_admin_options(Command* command, AdminClient* client);

// A subcommand of `parent` that talks to the admin API. Options has the members `server` (an
// AdminClient) and `json`; `arguments` adds the others.
template <typename Options>
void add_admin_command(Command* parent, int* exit_code, const std::string& name, const char* help,
                       const std::function<void(Command*, Options*)>& arguments,
                       std::function<Result<int>(const Options&)> run) {
  auto options = std::make_shared<Options>();
  Command* command = parent->add_subcommand(name, help);
  add_admin_options(command, &options->server);
  add_json_option(command, &options->json);
  arguments(command, options.get());
  run_command(command, exit_code, &options->json,
              [options, run = std::move(run)] { return run(*options); });
}

// How a path that was given here is named to the server, which may run in another folder.
std::string path_for_server(const std::string& path);
// Of a column of strings: the longest in `list`, at least `least`.
size_t width_of(const Json& list, const char* key, size_t least);

// The status of an error that came with this HTTP status.
Status status_of(int http_status, std::string message);
std::string percent_encoded(const std::string& text);

}  // namespace deltad
