// A config as text, for --check-config.
#include <fmt/core.h>
#include <xxhash.h>

#include <utility>

#include "deltad/config.h"

namespace deltad {

std::string describe(const Config& config) {
  const auto count_or = [](int64_t n, const char* zero) {
    return n == 0 ? std::string(zero) : std::to_string(n);
  };
  std::string out;
  out += fmt::format("base:      {}{}\n", config.base,
                     config.base_name.empty() ? "" : fmt::format(" as '{}'", config.base_name));
  for (const VariantSource& v : config.variants)
    out += fmt::format("variant:   {} = {}{}{}\n", v.name, v.path,
                       v.limit.any() ? ", with a rate limit" : "", v.pin ? ", pinned" : "");
  if (!config.watch.folder.empty())
    out += fmt::format("watched:   {}, settle time {:g} s\n", config.watch.folder,
                       seconds(config.watch.settle));
  if (!config.pool.folder.empty())
    out += fmt::format("pool:      {}, {} bytes, {}, merges by {}, each keeps {:g} of its score\n",
                       config.pool.folder, config.pool.pool.budget,
                       pool_policy_name(config.pool.pool.policy),
                       pool_merge_by_name(config.pool.pool.merge_by), config.pool.pool.keep_share);
  out += fmt::format("listen:    {}, {} I/O threads, at most {} connections\n", config.http.listen,
                     config.http.threads, config.http.connections);
  const TlsFiles& admin_tls = config.admin_tls.any() ? config.admin_tls : config.tls;
  const auto tls_text = [](const TlsFiles& tls) {
    if (!tls.any()) return std::string("none");
    return tls.certificate +
           (tls.client_ca.empty() ? "" : ", clients need a certificate of " + tls.client_ca);
  };
  out += fmt::format("TLS:       {}{}\n", tls_text(config.tls),
                     config.admin_listen.empty() ? "" : "; admin: " + tls_text(admin_tls));
  out += fmt::format("keys:      {}{}\n",
                     config.api_keys.empty() && config.keys_file.empty()
                         ? "none: the API is open to all that reach it"
                         : fmt::format("{} in the config", config.api_keys.size()),
                     config.keys_file.empty() ? "" : ", more in " + config.keys_file);
  if (!config.admin_listen.empty())
    out += fmt::format(
        "admin:     {}, {}\n", config.admin_listen,
        config.admin_api_keys.empty() && config.keys_file.empty() ? "open" : "with a key");
  for (const auto& [listen, what] : {std::pair{&config.grpc_listen, ""},
                                     std::pair{&config.grpc_admin_listen, ", the admin API"}})
    if (!listen->empty())
      out += fmt::format(
          "grpc:      {}{}, {} calls at once on a connection, {} bytes for what arrives\n", *listen,
          what, config.grpc_streams, config.grpc_memory);
  out += fmt::format("device:    {}\n", device_name(config.device));
  if (config.tensor_parallel > 1)
    out += fmt::format(
        "parallel:  {} ranks share the base and each variant; on GPUs, communicator {}\n",
        config.tensor_parallel, communicator_name(config.communicator));
  out += fmt::format("cpu:       threads {}, instruction set {}\n",
                     count_or(config.cpu.threads, "one a core"),
                     config.cpu.isa.empty() ? "the best there is" : config.cpu.isa);
  out += fmt::format(
      "engine:    KV cache {}, context {}, {} rows and {:.0f} ms a step, {} running, {} waiting\n",
      count_or(config.engine.kv_bytes, "auto"), count_or(config.engine.max_context, "the model's"),
      config.engine.max_step_rows, config.engine.step_seconds * 1e3, config.engine.max_running,
      config.engine.max_waiting);
  out += fmt::format(
      "variants:  memory {}, host memory {}, half-life {:g} s, age bound {:g} s; {} waiting, {} "
      "for one variant\n",
      count_or(config.router.cache_bytes, "auto"),
      config.router.host_bytes == kAutomaticBytes ? "auto"
                                                  : count_or(config.router.host_bytes, "none"),
      config.router.half_life_seconds, config.router.age_bound_seconds,
      count_or(config.router.max_waiting, "auto"),
      count_or(config.router.max_waiting_per_variant, "auto"));
  if (!config.tracing.endpoint.empty())
    out += fmt::format("traces:    {:g} of those that begin here, to {} as {}\n",
                       config.trace_ratio, config.tracing.endpoint, config.tracing.service);
  return out;
}

std::string config_digest(const Config& config) {
  std::string text = describe(config);
  for (const auto& [key, value] : config.keys) text += fmt::format("{}={}\n", key, value);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace deltad
