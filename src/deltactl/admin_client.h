// AdminClient: the admin API of a running deltad, for the subcommands that change it. Main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace deltad {

using Json = nlohmann::ordered_json;

struct AdminClient {
  std::string server, api_key;

  // The answer's document, or why there is none.
  Result<Json> ask(std::string method, std::string path, const Json& body = nullptr) const;
};

// --server and --api-key.
void add_admin_options(CLI::App* command, AdminClient* client);

// The status of an error that came with this HTTP status.
Status status_of(int http_status, std::string message);
std::string percent_encoded(const std::string& text);

}  // namespace deltad
