// Config: what deltad runs with, from a YAML file and the command line over it. Every key is
// described in config/deltad.yaml. Plain data; read once at start by the main thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/engine.h"
#include "router/router.h"

namespace deltad {

struct ServerConfig {
  std::string address = "127.0.0.1";
  uint16_t port = 8080;
  int io_threads = 2;
  int64_t max_body_bytes = int64_t{8} << 20;
  int max_connections = 4096;
  double header_seconds = 10;  // for a request's header to arrive
  double idle_seconds = 120;   // between two requests of a connection
  double drain_seconds = 30;   // for running requests after SIGTERM
  std::vector<std::string> cors_origins = {"*"};
};

struct Config {
  std::string base;       // model folder or .gguf file
  std::string base_name;  // as clients call it; "": the folder's or file's name
  std::vector<VariantSource> variants;
  ServerConfig server;
  EngineOptions engine;
  CpuBackendOptions cpu;
  RouterOptions router;  // names and digests are filled in once the base is known
  LogLevel log_level = LogLevel::kInfo;
};

// Reads YAML on top of *config. kInvalidArgument: "FILE line N: key …: what is allowed". Relative
// paths are relative to the file's folder.
Status read_config(std::string_view yaml, const std::string& file, Config* config);

// "ADDRESS:PORT", "[IPv6]:PORT" or "PORT".
Status parse_listen(const std::string& text, ServerConfig* server);
// "NAME=PATH".
Result<VariantSource> parse_variant(const std::string& text);
// The whole config as text, for --check-config.
std::string describe(const Config& config);

}  // namespace deltad
