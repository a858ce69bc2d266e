// The models of the server under load.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "client/connect.h"
#include "client/server_url.h"

namespace deltad::loadgen {

// The ids that GET /v1/models lists, in its order. Blocks, at most about `timeout_s`.
Result<std::vector<std::string>> list_models(const client::ServerUrl& url,
                                             const client::SocketAddress& address,
                                             const std::string& api_key, double timeout_s);

}  // namespace deltad::loadgen
