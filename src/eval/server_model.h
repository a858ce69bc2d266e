// ServerModel: one model of a server that speaks the OpenAI API, as an evaluation asks it. Blocks;
// any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"
#include "client/connect.h"
#include "client/server_url.h"
#include "client/tls.h"

namespace deltad {

struct ServerModel {
  client::ServerUrl url;
  client::SocketAddress address;
  std::string model, api_key;
  client::TlsOptions tls;

  // url: as a person gives it.
  static Result<ServerModel> find(const std::string& url, std::string model, std::string api_key,
                                  client::TlsOptions tls);
  // `body`, with the model's name, sent to `path`. The answer of a status other than 200 is an
  // error: kNotFound for 404, else kInternal.
  Result<nlohmann::ordered_json> post(const std::string& path, nlohmann::ordered_json body) const;
  // That the server's answer to `path` lacks something.
  Status lacks(const std::string& path, const std::string& what) const;
};

}  // namespace deltad
