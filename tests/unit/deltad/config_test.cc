// The config file: every key, every kind of mistake with its key and line, and that the shipped
// files are right.
#include "deltad/config.h"

#include <gmock/gmock.h>

#include "io/file_reader.h"

namespace deltad {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& yaml) {
  Config config;
  const Status status = read_config(yaml, "/etc/deltad/my.yaml", &config);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << yaml;
  return status.message();
}

TEST(Config, ReadsEveryKey) {
  Config config;
  const Status status = read_config(R"(
base: models/base
base_name: smol
variants:
  coder: v/coder.delta.safetensors
  team/legal: {path: /v/legal, rate_limit: {requests_per_second: 0.5, burst: 3, tokens_per_minute: 600}}
log: warning
server: {listen: "[::1]:9000", io_threads: 3, real_time_io: false, max_body: 1MiB, max_connections: 10,
         header_seconds: 2, idle_seconds: 3.5, drain_seconds: 4, request_seconds: 90, cors_origins: [https://a, https://b], api_keys: [secret],
         admin: {listen: "0.0.0.0:9001", api_keys: [admin-secret]},
         grpc: {listen: 9002, admin_listen: "127.0.0.1:9003", max_streams: 77, memory: 3MiB}}
engine: {kv_cache: 512KiB, kv_host: 2MiB, communicator: nccl, max_context: 100, max_step_rows: 64, max_running: 5, max_waiting: 6, step_milliseconds: 50,
         prefix_cache: false, age_seconds: 2.5, background_share: 0.2, burst_tokens: 100, base_weight: 3,
         variant_weights: {coder: 0.5, team/legal: 2}}
device: cuda
cpu: {threads: 2, pin: false, isa: avx2}
variant_watch: {folder: incoming, settle_seconds: 0.25}
variant_loading: {threads: 3, retry_seconds: 0.5, bytes_per_second: 200MiB}
variant_cache: {memory: 64MiB, host_memory: 96MiB, half_life_seconds: 30, age_bound_seconds: 2.5}
queue: {max_requests: 7, max_requests_per_variant: 3}
adapter_pool: {folder: pool, budget: 3MiB, policy: kmerge, merge_by: opcm, keep_share: 0.7, store_below: 0.25,
               max_dropped_energy: 0.2, opcm_share: 0.6, scoring_concurrency: 2, scoring_max_tokens: 32}
)",
                                    "/etc/deltad/my.yaml", &config);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.base, "/etc/deltad/models/base");
  EXPECT_EQ(config.base_name, "smol");
  ASSERT_EQ(config.variants.size(), 2u);
  EXPECT_EQ(config.variants[0].path, "/etc/deltad/v/coder.delta.safetensors");
  EXPECT_EQ(config.variants[1].name, "team/legal");
  EXPECT_EQ(config.variants[1].path, "/v/legal");
  EXPECT_FALSE(config.variants[0].limit.any());
  EXPECT_EQ(config.variants[1].limit, (VariantLimit{0.5, 3, 600}));
  EXPECT_EQ(config.log_level, LogLevel::kWarning);
  EXPECT_EQ(config.device, DeviceChoice::kCuda);
  EXPECT_EQ(config.communicator, CommunicatorChoice::kNccl);
  EXPECT_EQ(config.http.listen, "[::1]:9000");
  EXPECT_EQ(config.http.threads, 3);
  EXPECT_FALSE(config.http.real_time);
  EXPECT_EQ(config.http.body_bytes, 1u << 20);
  EXPECT_EQ(config.http.connections, 10u);
  EXPECT_EQ(config.http.header_timeout, std::chrono::seconds(2));
  EXPECT_EQ(config.http.idle_timeout, std::chrono::milliseconds(3500));
  EXPECT_EQ(config.drain_seconds, 4);
  EXPECT_EQ(config.request_seconds, 90);
  EXPECT_EQ(config.cors_origins, (std::vector<std::string>{"https://a", "https://b"}));
  EXPECT_EQ(config.api_keys, std::vector<std::string>{"secret"});
  EXPECT_EQ(config.admin_listen, "0.0.0.0:9001");
  EXPECT_EQ(config.grpc_listen, "127.0.0.1:9002");
  EXPECT_EQ(config.grpc_admin_listen, "127.0.0.1:9003");
  EXPECT_EQ(config.grpc_streams, 77);
  EXPECT_EQ(config.grpc_memory, 3u << 20);
  EXPECT_EQ(config.admin_api_keys, std::vector<std::string>{"admin-secret"});
  EXPECT_EQ(config.engine.kv_bytes, 512 << 10);
  EXPECT_EQ(config.engine.kv_host_bytes, 2 << 20);
  EXPECT_EQ(config.router.host_bytes, 96 << 20);
  EXPECT_EQ(config.engine.max_context, 100);
  EXPECT_EQ(config.engine.max_step_rows, 64);
  EXPECT_EQ(config.engine.max_running, 5);
  EXPECT_EQ(config.engine.max_waiting, 6);
  EXPECT_DOUBLE_EQ(config.engine.step_seconds, 0.05);
  EXPECT_FALSE(config.engine.prefix_cache);
  EXPECT_EQ(config.engine.age_seconds, 2.5);
  EXPECT_EQ(config.engine.burst_tokens, 100);
  EXPECT_EQ(config.engine.weights.base, 3);
  EXPECT_EQ(config.engine.weights.variants,
            (std::map<std::string, double>{{"coder", 0.5}, {"team/legal", 2}}));
  EXPECT_EQ(config.cpu.threads, 2);
  EXPECT_FALSE(config.cpu.pin);
  EXPECT_EQ(config.cpu.isa, "avx2");
  EXPECT_EQ(config.watch.folder, "/etc/deltad/incoming");
  EXPECT_EQ(config.watch.settle, std::chrono::milliseconds(250));
  EXPECT_EQ(config.router.loader_threads, 3);
  EXPECT_EQ(config.router.cache_bytes, 64 << 20);
  EXPECT_EQ(config.router.half_life_seconds, 30);
  EXPECT_EQ(config.router.age_bound_seconds, 2.5);
  EXPECT_EQ(config.router.max_waiting, 7);
  EXPECT_EQ(config.router.max_waiting_per_variant, 3);
  EXPECT_DOUBLE_EQ(config.router.retry_seconds, 0.5);
  EXPECT_EQ(config.router.bytes_per_second, 200 << 20);
  EXPECT_DOUBLE_EQ(config.engine.background_share, 0.2);
  EXPECT_EQ(config.pool.folder, "/etc/deltad/pool");
  EXPECT_EQ(config.pool.pool.budget, 3 << 20);
  EXPECT_EQ(config.pool.pool.policy, PoolPolicy::kKmerge);
  EXPECT_EQ(config.pool.pool.merge_by, PoolMergeBy::kOpcm);
  EXPECT_DOUBLE_EQ(config.pool.pool.keep_share, 0.7);
  EXPECT_DOUBLE_EQ(*config.pool.pool.store_below, 0.25);
  EXPECT_DOUBLE_EQ(config.pool.pool.max_dropped_energy, 0.2);
  EXPECT_DOUBLE_EQ(config.pool.pool.opcm_share, 0.6);
  EXPECT_EQ(config.pool.scoring.concurrency, 2);
  EXPECT_EQ(config.pool.scoring.max_tokens, 32);
}

TEST(Config, NamesKeyLineAndWhatIsAllowed) {
  EXPECT_THAT(error_of("base: a\nengin: {}\n"),
              HasSubstr("my.yaml line 2: unknown key 'engin'; allowed are base,"));
  EXPECT_THAT(
      error_of("engine:\n  max_running: 0\n"),
      HasSubstr("line 2: key 'engine.max_running': expected a whole number from 1 to 65536"));
  EXPECT_THAT(error_of("engine:\n  kv_cash: 1GiB\n"),
              HasSubstr("line 2: unknown key 'engine.kv_cash'; allowed are kv_cache"));
  EXPECT_THAT(error_of("server:\n  listen: nowhere\n"),
              HasSubstr("key 'server.listen': expected ADDRESS:PORT"));
  EXPECT_THAT(error_of("server: {max_body: 8MiB, grpc: {listen: 1, memory: 15MiB}}\n"),
              HasSubstr("key 'server.grpc.memory': expected at least twice server.max_body"));
  EXPECT_THAT(error_of("server: 3\n"), HasSubstr("key 'server': expected a map"));
  EXPECT_THAT(error_of("variants: [a, b]\n"), HasSubstr("expected a map of NAME: PATH"));
  EXPECT_THAT(error_of("server: {api_keys: secret}\n"), HasSubstr("expected a list of keys"));
  EXPECT_THAT(error_of("variant_loading: {bytes_per_second: -1}\n"),
              HasSubstr("expected 0 (no cap) or a size such as 200MiB"));
  EXPECT_THAT(error_of("engine: {kv_cache: 2GB}\n"),
              HasSubstr("expected auto or a size such as 2GiB"));
  EXPECT_THAT(error_of("engine:\n  variant_weights: {coder: 0}\n"),
              HasSubstr("line 2: key 'engine.variant_weights': expected a map of NAME: a number "
                        "from 0.001 to 1000"));
  EXPECT_THAT(error_of("engine: {base_weight: .inf}\n"),
              HasSubstr("key 'engine.base_weight': expected a number from 0.001 to 1000"));
  EXPECT_THAT(error_of("engine: {step_milliseconds: .nan}\n"),
              HasSubstr("expected a number above 0"));
  EXPECT_THAT(error_of("cpu: {isa: sse}\n"),
              HasSubstr("expected scalar, avx2, avx512 or avx512_bf16"));
  EXPECT_THAT(error_of("device: gpu\n"), HasSubstr("key 'device': expected auto, cpu or cuda"));
  EXPECT_THAT(error_of("engine: {communicator: tcp}\n"),
              HasSubstr("key 'engine.communicator': expected auto, peer or nccl"));
  EXPECT_THAT(error_of("log: loud\n"), HasSubstr("expected debug, info, warning or error"));
  EXPECT_THAT(error_of("base: a\nbase: b\n"), HasSubstr("line 2: key 'base' is given twice"));
  EXPECT_THAT(error_of("queue: {max_requests: many}\n"),
              HasSubstr("key 'queue.max_requests': expected auto or a whole number"));
  EXPECT_THAT(
      error_of("variant_watch: {settle_seconds: 0}\n"),
      HasSubstr("key 'variant_watch.settle_seconds': expected a number of seconds above 0"));
  EXPECT_THAT(error_of("variant_cache: {memory: 0}\n"), HasSubstr("expected auto or a size"));
  EXPECT_THAT(error_of("adapter_pool: {policy: best}\n"),
              HasSubstr("key 'adapter_pool.policy': expected shrink-first or kmerge"));
  EXPECT_THAT(error_of("adapter_pool: {merge_by: mean}\n"),
              HasSubstr("expected best, average or opcm"));
  EXPECT_THAT(error_of("adapter_pool: {keep_share: 1.5}\n"),
              HasSubstr("expected a number from 0 to 1"));
  EXPECT_THAT(error_of("adapter_pool: {store_below: never}\n"),
              HasSubstr("expected off or a number from -1 to 1"));
  EXPECT_THAT(error_of("adapter_pool: {folder: p}\n"), HasSubstr("give adapter_pool.budget too"));
  EXPECT_THAT(error_of("adapter_pool: {budget: 1MiB}\n"),
              HasSubstr("give adapter_pool.folder too"));
  EXPECT_THAT(error_of("base: [\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of("- a\n- b\n"), HasSubstr("expected a map of keys"));
}

TEST(Config, TheAdminApiIsOffUnlessAskedForAndOpenOnlyOnThisMachine) {
  EXPECT_EQ(Config().admin_listen, "");
  const auto listen = [](const std::string& value) {
    Config config;
    const Status status =
        read_config("server: {admin: {listen: \"" + value + "\"}}", "f.yaml", &config);
    return status.ok() ? config.admin_listen : status.message();
  };
  EXPECT_EQ(listen("9001"), "127.0.0.1:9001");
  for (const char* local : {"127.0.0.1:9001", "127.9.9.9:1", "[::1]:9001", "localhost:0"})
    EXPECT_EQ(listen(local), local);
  for (const char* open : {"0.0.0.0:9001", "[::]:9001", "10.0.0.1:9001", "myhost:9001"})
    EXPECT_THAT(listen(open), HasSubstr("may be reached by others: give server.admin.api_keys"));
  for (const char* wrong : {"nine", "70000", ":9001", "host:"})
    EXPECT_THAT(listen(wrong), HasSubstr("key 'server.admin.listen': expected PORT or ADDRESS"));
  EXPECT_THAT(error_of("server: {admin: {key: x}}\n"),
              HasSubstr("unknown key 'server.admin.key'; allowed are listen, api_keys"));
  EXPECT_THAT(error_of("server: {admin: 9001}\n"), HasSubstr("key 'server.admin': expected a map"));
}

TEST(Config, GrpcIsOffUnlessAskedForAndItsAdminServiceOpenOnlyOnThisMachine) {
  const auto read = [](const std::string& fields, Config* config) {
    return read_config("server: {" + fields + "}", "f.yaml", config).message();
  };
  Config config;
  EXPECT_EQ(config.grpc_listen + config.grpc_admin_listen, "");
  EXPECT_EQ(read("grpc: {listen: 9001, admin_listen: 9002}", &config), "");
  EXPECT_EQ(config.grpc_listen, "127.0.0.1:9001");
  EXPECT_EQ(config.grpc_admin_listen, "127.0.0.1:9002");
  EXPECT_THAT(describe(config), HasSubstr("127.0.0.1:9001"));
  EXPECT_THAT(describe(config), HasSubstr("127.0.0.1:9002, the admin API"));
  EXPECT_EQ(read("grpc: {listen: '0.0.0.0:9001'}", &config), "");  // as HTTP's
  const std::string open = "grpc: {admin_listen: '0.0.0.0:9002'}";
  EXPECT_THAT(read(open, &config), HasSubstr("key 'server.grpc.admin_listen': 0.0.0.0:9002 may be "
                                             "reached by others: give server.admin.api_keys"));
  EXPECT_EQ(read(open + ", keys_file: /keys", &config), "");
  EXPECT_THAT(read("grpc: {listen: x}", &config), HasSubstr("key 'server.grpc.listen': expected"));
}

TEST(Config, AClientsKeyDoesNotOpenTheAdminApi) {
  EXPECT_THAT(error_of("server: {api_keys: [a, b], admin: {listen: 9001, api_keys: [c, b]}}\n"),
              HasSubstr("a key of server.api_keys must not open it too"));
}

TEST(Config, AVariantsRateLimitIsChecked) {
  for (const char* wrong :
       {"{}", "{path: ''}", "{rate_limit: {requests_per_second: 1}}", "{path: /v, weight: 2}",
        "{path: /v, rate_limit: 3}", "{path: /v, rate_limit: {}}",
        "{path: /v, rate_limit: {burst: 2}}", "{path: /v, rate_limit: {requests_per_second: 0}}",
        "{path: /v, rate_limit: {requests_per_second: .inf}}",
        "{path: /v, rate_limit: {requests_per_second: 1, burst: 1.5}}",
        "{path: /v, rate_limit: {tokens_per_minute: 1, tokens: 2}}"})
    EXPECT_THAT(error_of(std::string("variants:\n  a: ") + wrong + "\n"),
                HasSubstr("line 2: key 'variants': expected a map of NAME: PATH or NAME: {path"))
        << wrong;
}

TEST(Config, AMistakeChangesNothing) {
  Config config;
  config.base = "kept";
  EXPECT_FALSE(read_config("base: other\nlog: loud\n", "f.yaml", &config).ok());
  EXPECT_EQ(config.base, "kept");
}

TEST(Config, AnEmptyFileIsAllDefaults) {
  Config config;
  EXPECT_TRUE(read_config("", "f.yaml", &config).ok());
  EXPECT_EQ(config.http.listen, "127.0.0.1:8080");
}

// The file that documents the keys gives the defaults, so reading it changes nothing.
TEST(Config, TheShippedFileHoldsTheDefaults) {
  const auto yaml = read_file(DELTAD_GOLDEN "/../../config/deltad.yaml");
  ASSERT_TRUE(yaml.ok());
  Config config;
  const Status status = read_config(*yaml, "config/deltad.yaml", &config);
  ASSERT_TRUE(status.ok()) << status.message();
  const Config plain;
  EXPECT_EQ(describe(config), describe(plain));
  EXPECT_EQ(config.http.real_time, plain.http.real_time);
  EXPECT_EQ(config.http.body_bytes, plain.http.body_bytes);
  EXPECT_EQ(config.http.connections, plain.http.connections);
  EXPECT_EQ(config.http.header_timeout, plain.http.header_timeout);
  EXPECT_EQ(config.http.idle_timeout, plain.http.idle_timeout);
  EXPECT_EQ(config.drain_seconds, plain.drain_seconds);
  EXPECT_EQ(config.request_seconds, plain.request_seconds);
  EXPECT_EQ(config.router.retry_seconds, plain.router.retry_seconds);
  EXPECT_EQ(config.watch.settle, plain.watch.settle);
  EXPECT_EQ(config.engine.burst_tokens, plain.engine.burst_tokens);
}

TEST(Config, CommandLineForms) {
  EXPECT_TRUE(check_listen("0.0.0.0:80").ok());
  for (const char* wrong : {"80", "host:", "host:70000", ":80", "host:8o"})
    EXPECT_FALSE(check_listen(wrong).ok()) << wrong;
  EXPECT_TRUE(listen_alike("127.0.0.1:80", "127.0.0.1:80"));
  EXPECT_TRUE(listen_alike("0.0.0.0:80", "127.0.0.1:80"));
  EXPECT_TRUE(listen_alike("[::1]:80", "[::]:80"));
  EXPECT_TRUE(listen_alike("localhost:80", "127.0.0.1:80"));
  EXPECT_FALSE(listen_alike("127.0.0.1:80", "127.0.0.1:81"));
  EXPECT_FALSE(listen_alike("127.0.0.1:80", "10.0.0.1:80"));
  EXPECT_FALSE(listen_alike("127.0.0.1:0", "127.0.0.1:0"));
  const auto variant = parse_variant("a/b=path=with=equals");
  ASSERT_TRUE(variant.ok());
  EXPECT_EQ(variant->name, "a/b");
  EXPECT_EQ(variant->path, "path=with=equals");
  for (const char* wrong : {"name", "=path", "name="})
    EXPECT_FALSE(parse_variant(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace deltad
