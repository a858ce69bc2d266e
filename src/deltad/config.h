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
#include "deltad/config_diff.h"
#include "deltad/device.h"
#include "deltad/listen_address.h"
#include "engine/engine.h"
#include "router/folder_watcher.h"
#include "router/router.h"
#include "server/http/http_server.h"
#include "server/observe/span_exporter.h"
#include "server/pool/pool_service.h"

namespace deltad {

struct Config {
  std::string base;       // model folder or .gguf file
  std::string base_name;  // as clients call it; "": the folder's or file's name
  std::vector<VariantSource> variants;
  WatchOptions watch;  // a folder of more variants
  HttpOptions http;
  double request_seconds = 0;  // that a request may take; 0: no bound
  double drain_seconds = 30;   // for running requests after SIGTERM
  std::vector<std::string> cors_origins = {"*"};
  std::vector<std::string> api_keys;  // none: open to all
  std::string admin_listen;           // "": no admin API
  std::vector<std::string> admin_api_keys;
  std::string grpc_listen, grpc_admin_listen;  // "": no gRPC there
  int grpc_streams = 1024;                     // calls at once on a connection
  size_t grpc_memory = 128u << 20;             // of a listener, for what arrives
  TlsFiles tls;                                // of the listener
  TlsFiles admin_tls;                          // of the admin listener; empty: as the other
  std::string keys_file;                       // of hashed API keys; "": none
  DeviceChoice device = DeviceChoice::kAuto;
  EngineOptions engine;
  CpuBackendOptions cpu;
  int tensor_parallel = 1;  // ranks that share the base and its variants
  CommunicatorChoice communicator = CommunicatorChoice::kAuto;  // of ranks on GPUs
  PoolServiceOptions pool;
  RouterOptions router;  // names and digests are filled in once the base is known
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kPlain;
  SpanExporterOptions tracing;  // endpoint "": nothing is traced
  double trace_ratio = 1;       // of the traces that begin here, so many are kept
  ConfigKeys keys;              // as the file gives them
};

// Reads YAML on top of *config. kInvalidArgument: "FILE line N: key …: what is allowed". Relative
// paths are relative to the file's folder.
Status read_config(std::string_view yaml, const std::string& file, Config* config);

// "NAME=PATH".
Result<VariantSource> parse_variant(const std::string& text);
// The whole config as text, for --check-config.
std::string describe(const Config& config);
// Tells configs apart: of what the file gives and what is described.
std::string config_digest(const Config& config);

}  // namespace deltad
