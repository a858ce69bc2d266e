#include "deltad/daemon.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <system_error>

#include "base/log.h"
#include "delta/checkpoint_text.h"
#include "delta/loader.h"
#include "deltad/device.h"
#include "parallel/shard_map.h"
#include "server/admin/debug_json.h"
#include "server/generation/generation_plan.h"

namespace deltad {
namespace {

constexpr double kMiB = 1 << 20;
constexpr Duration kBeat = std::chrono::seconds(1);
constexpr auto kLook = std::chrono::milliseconds(50);  // at variants that are being loaded

std::string served_name(const Config& config, const std::string& path_name) {
  return config.base_name.empty() ? path_name : config.base_name;
}

// A line at each tenth of the way.
class LoadingLog {
 public:
  void update(int64_t done, int64_t total) {
    const int tenth = total > 0 ? static_cast<int>(10 * done / total) : 0;
    int seen = seen_.load();
    while (tenth > seen) {
      if (!seen_.compare_exchange_weak(seen, tenth)) continue;
      log_info("loading the base: {} % of {:.0f} MiB", 10 * tenth,
               static_cast<double>(total) / kMiB);
      return;
    }
  }

 private:
  std::atomic<int> seen_{0};
};

Result<std::unique_ptr<BaseModel>> load_base_on(const Config& config, const Progress& progress) {
  const Duration patience = from_seconds(config.engine.stall_seconds);
  if (config.tensor_parallel > 1) {
    const ParallelOptions ranks{config.tensor_parallel, patience};
    const MakeRanks make = [&](const ModelConfig& model) {
      return make_parallel_backend(config.device, config.communicator, model, config.cpu, ranks);
    };
    return load_base_model(config.base, make, progress);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                   make_backend(config.device, config.cpu, patience));
  return load_base_model(config.base, std::move(backend), progress);
}

Status no_tokenizer(const std::string& base) {
  return invalid_argument(
      fmt::format("{}: no tokenizer.json: text cannot be served without one", base));
}

const TlsFiles& admin_tls_of(const Config& config) {
  return config.admin_tls.any() ? config.admin_tls : config.tls;
}

// It may come later, but as a folder.
Status check_watched(const std::string& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found)
    log_warning("the watched folder {} does not exist yet", path);
  else if (kind != std::filesystem::file_type::directory)
    return invalid_argument(fmt::format("the watched folder {} is not a folder{}", path,
                                        error ? ": " + error.message() : ""));
  return Status();
}

}  // namespace

AccessOptions access_options(const Config& config) {
  AccessOptions options;
  options.api_keys = config.api_keys;
  options.admin_api_keys = config.admin_api_keys;
  options.keys_file = config.keys_file;
  return options;
}

int64_t most_waiting(const Config& config) {
  if (config.router.max_waiting > 0) return config.router.max_waiting;
  return int64_t{config.engine.max_waiting} + config.engine.max_running;
}

Daemon::Daemon(const Config& config, std::unique_ptr<Access> access,
               std::unique_ptr<SpanExporter> spans)
    : config_(config),
      spans_(std::move(spans)),
      observer_(spans_.get(), config.trace_ratio),
      access_(std::move(access)),
      api_(ApiOptions{config.cors_origins}, *access_, observer_),
      admin_api_(*access_, observer_) {}

Result<std::unique_ptr<Daemon>> Daemon::start(const Config& config,
                                              std::function<void()> on_failure) {
  ASSIGN_OR_RETURN(std::unique_ptr<Access> access, Access::make(access_options(config)));
  std::unique_ptr<SpanExporter> spans;
  if (!config.tracing.endpoint.empty()) {
    ASSIGN_OR_RETURN(spans, SpanExporter::make(config.tracing));
  }
  std::unique_ptr<Daemon> daemon(new Daemon(config, std::move(access), std::move(spans)));
  RETURN_IF_ERROR(daemon->open_certificates());
  const Connections connections = daemon->divide_connections();
  RETURN_IF_ERROR(daemon->start_http(connections));
  RETURN_IF_ERROR(daemon->start_grpc(connections));
  RETURN_IF_ERROR(daemon->poll_files());
  daemon->loader_ = std::thread([self = daemon.get(), on_failure = std::move(on_failure)] {
    const Status status = self->load();
    if (status.ok()) return;
    {
      MutexLock lock(self->mutex_);
      self->failure_ = status;
    }
    on_failure();
  });
  daemon->heartbeat_ = std::make_unique<Heartbeat>(
      std::min<Duration>(kBeat, daemon->notifier_.watchdog_interval().value_or(kBeat)),
      [self = daemon.get()] { self->beat(); });
  return daemon;
}

Daemon::~Daemon() {
  {
    MutexLock lock(mutex_);
    leaving_ = true;
    left_.notify_all();
  }
  heartbeat_.reset();
  if (loader_.joinable()) loader_.join();
  for (const auto& server : {&http_, &admin_http_})
    if (*server) (*server)->stop();
  for (const auto& server : {&grpc_, &admin_grpc_})
    if (*server) (*server)->stop();
}

// So that they leave descriptors for all else.
Connections Daemon::divide_connections() const {
  const size_t limit = raise_descriptor_limit();
  const int listeners = config_.grpc_listen.empty() ? 1 : 2;
  const int admins = !config_.admin_listen.empty() + !config_.grpc_admin_listen.empty();
  const size_t wanted = config_.http.connections;
  const Connections connections = divide_descriptors(limit, wanted, listeners, admins);
  if (connections.listener < wanted)
    log_warning(
        "server.max_connections is {}, but {} file descriptors are enough for {} on a listener: "
        "set the limit (ulimit -n, LimitNOFILE=, --ulimit nofile=) to {}, or "
        "server.max_connections "
        "lower",
        wanted, limit, connections.listener, descriptors_for(wanted, listeners, admins));
  return connections;
}

Status Daemon::start_http(const Connections& connections) {
  HttpOptions options = config_.http;
  options.connections = connections.listener;
  ASSIGN_OR_RETURN(http_, HttpServer::start(options, api_, certificates_.get()));
  log_info("listening on {}", http_->address());
  if (config_.admin_listen.empty()) return Status();
  options.listen = config_.admin_listen;
  options.threads = 1;
  options.connections = connections.admin;
  ASSIGN_OR_RETURN(admin_http_, HttpServer::start(options, admin_api_, admin_certificates_.get()));
  log_info("admin API on {}", admin_http_->address());
  return Status();
}

Status Daemon::start_grpc(const Connections& connections) {
  GrpcOptions options;
  options.connections = connections.listener;
  options.connections_per_address = config_.http.connections_per_address;
  options.streams = config_.grpc_streams;
  options.memory_bytes = config_.grpc_memory;
  options.idle_timeout = config_.http.idle_timeout;
  options.handshake_timeout = config_.http.header_timeout;
  options.threads = config_.http.threads;
  options.real_time = config_.http.real_time;
  options.message_bytes = config_.http.body_bytes;
  options.stream_bytes = config_.http.stream_bytes;
  options.write_timeout = config_.http.write_timeout;
  if (!config_.grpc_listen.empty()) {
    options.listen = config_.grpc_listen;
    ASSIGN_OR_RETURN(grpc_, GrpcServer::start(options, GrpcRole::kInference, *access_, observer_,
                                              api_.readiness(), certificates_.get()));
    log_info("gRPC on {}", grpc_->address());
  }
  if (!config_.grpc_admin_listen.empty()) {
    options.listen = config_.grpc_admin_listen;
    options.threads = 1;
    options.connections = connections.admin;
    ASSIGN_OR_RETURN(admin_grpc_,
                     GrpcServer::start(options, GrpcRole::kAdmin, *access_, observer_,
                                       admin_api_.readiness(), admin_certificates_.get()));
    log_info("gRPC admin API on {}", admin_grpc_->address());
  }
  return Status();
}

void Daemon::update_health() {
  for (const auto& server : {&grpc_, &admin_grpc_})
    if (*server) (*server)->update_health();
}

Status Daemon::device_health() const { return engine_ ? engine_->device_health() : Status(); }

Status Daemon::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

Status Daemon::open_certificates() {
  if (config_.tls.any()) {
    ASSIGN_OR_RETURN(certificates_, CertificateStore::make(config_.tls));
  }
  const TlsFiles& admin = admin_tls_of(config_);
  if (admin.any() && !(config_.admin_listen.empty() && config_.grpc_admin_listen.empty())) {
    ASSIGN_OR_RETURN(admin_certificates_, CertificateStore::make(admin));
  }
  return Status();
}

// The files that are read anew when they change.
Status Daemon::poll_files() {
  if (config_.keys_file.empty() && !certificates_ && !admin_certificates_) return Status();
  polled_ = std::make_unique<FilePoll>();
  const auto poll = [this](const char* what, const std::vector<std::string>& files,
                           std::function<Status()> reload) {
    polled_->add(files, [what, files, reload] {
      const Status status = reload();
      if (status.ok())
        log_info("{} read anew from {}", what, files.front());
      else
        log_error("{} stay as they were: {}", what, status.message());
    });
    return reload();  // what changed before it was polled
  };
  if (!config_.keys_file.empty())
    RETURN_IF_ERROR(poll("API keys", {config_.keys_file}, [this] { return access_->reload(); }));
  for (const auto& store : {certificates_.get(), admin_certificates_.get()})
    if (store != nullptr)
      RETURN_IF_ERROR(poll("certificates", store->files(), [store] { return store->reload(); }));
  return Status();
}

Status Daemon::load() {
  const TimePoint start = Clock::real().now();
  LoadingLog progress;
  ASSIGN_OR_RETURN(base_, load_base_on(config_, [&](int64_t done, int64_t total) {
                     progress.update(done, total);
                   }));
  if (!base_->text) return no_tokenizer(config_.base);
  ASSIGN_OR_RETURN(engine_, Engine::make(*base_, config_.engine));
  RouterOptions options = config_.router;
  options.base_name = served_name(config_, base_->name);
  options.base_digest = base_->digest;
  options.architecture = base_->config().architecture;
  options.max_waiting = most_waiting(config_);
  ASSIGN_OR_RETURN(router_, Router::make(options, config_.variants, base_->text, base_->table,
                                         base_->weights(), *engine_));
  // Before the watched folder: its names are taken first.
  if (!config_.pool.folder.empty()) {
    ASSIGN_OR_RETURN(pool_,
                     PoolService::start(config_.pool, base_->table, base_->digest, *router_));
    const PoolView view = pool_->view();
    log_info("adapter pool in {}: {} adapters in {} members, {} of {} bytes", config_.pool.folder,
             view.adapters.size(), view.members.size(), view.bytes, view.budget);
    if (view.bytes > view.budget)
      log_warning("the adapter pool is over its budget: the next change shrinks it, or is refused");
  }
  if (!config_.watch.folder.empty()) {
    ASSIGN_OR_RETURN(watcher_, FolderWatcher::start(config_.watch, *router_));
  }

  loaded_at_ = unix_now();
  backends_ = backend_list(config_.device);
  set_serving(config_);
  watchdog_ = std::make_unique<EngineWatchdog>(
      *engine_, from_seconds(config_.engine.stall_seconds), observer_.metrics(),
      [this] { return to_text(debug_json(serving(), observer_)); });
  serves_ = true;
  admin_api_.readiness().set_ready(serving());
  update_health();
  load_pinned();
  loaded_ = true;
  api_.readiness().set_ready(serving());
  update_health();
  notifier_.ready("serving");
  const EngineStats stats = engine_->stats();
  log_info(
      "ready after {:.1f} s: {} ({}), {:.0f} MiB of weights, {} variants, KV cache of {} tokens, "
      "context {}",
      seconds(Clock::real().now() - start), options.base_name, base_->weights().description(),
      static_cast<double>(base_->weights().weight_bytes()) / kMiB, router_->variants().size(),
      stats.kv_blocks * stats.block_tokens, engine_->max_context());
  return Status();
}

Serving Daemon::serving() const {
  MutexLock lock(mutex_);
  return serving_;
}

// What a config says of it.
void Daemon::set_serving(const Config& config) {
  Serving serving;
  serving.router = router_.get();
  serving.engine = engine_.get();
  serving.pool = pool_.get();
  serving.request_seconds = config.request_seconds;
  serving.base_path = config.base;
  serving.created = loaded_at_;
  serving.base_bytes = base_->weights().weight_bytes();
  serving.device = base_->weights().description();
  serving.backends = backends_;
  serving.config_digest = config_digest(config);
  MutexLock lock(mutex_);
  serving_ = std::move(serving);
}

// The config's pinned variants: ready is who has them. One that fails is tried again and again; one
// that somebody removes meanwhile is waited for no longer.
void Daemon::load_pinned() {
  std::map<std::string, std::string> missing;  // and the last error that was logged
  for (const VariantSource& variant : config_.variants)
    if (variant.pin) missing[variant.name];
  TimePoint next_try{};
  while (true) {
    const TimePoint now = Clock::real().now();
    const bool tries = now >= next_try;
    if (tries) next_try = now + from_seconds(config_.router.retry_seconds);
    for (auto it = missing.begin(); it != missing.end();)
      it = pinned(it->first, tries, &it->second) ? missing.erase(it) : std::next(it);
    if (missing.empty()) return;
    std::string names;
    for (const auto& [name, error] : missing) names += (names.empty() ? "" : ", ") + name;
    api_.readiness().set_loaded(serving(),
                                fmt::format("Pinned variants are being loaded: {}.", names));
    MutexLock lock(mutex_);
    if (leaving_) return;
    (void)left_.wait_until(mutex_, now + kLook);
  }
}

// Whether it is in memory to stay, or gone for good; else it is pinned, if that is to be tried.
bool Daemon::pinned(const std::string& name, bool tries, std::string* error) {
  const Result<VariantInfo> info = router_->variant(name);
  if (!info.ok()) return true;
  if (info->pinned || !tries) return info->pinned && info->state == VariantState::kResident;
  const Status status = router_->pin(name);
  if (!status.ok() && status.message() != *error) {
    log_error("variant {} cannot be pinned: {}", name, status.message());
    *error = status.message();
  }
  return false;
}

void Daemon::beat() {
  // systemd starts anew what hangs, or has failed for good.
  if (!serves_ || (watchdog_->check() && engine_->device_health().ok())) notifier_.watchdog();
  update_health();  // an engine that stalls, or goes on
}

void Daemon::drain() {
  observer_.metrics().set_draining();
  notifier_.stopping("draining");
  const TimePoint deadline = Clock::real().now() + from_seconds(config_.drain_seconds);
  api_.readiness().close("The server is shutting down.");
  admin_api_.readiness().close("The server is shutting down.");
  update_health();
  for (const auto& server : {&http_, &admin_http_})
    if (*server) (*server)->drain();
  if (watcher_) watcher_->stop();
  if (pool_) pool_->stop();
  router_->shutdown(deadline);
  // Cancelled requests still get their last words.
  const TimePoint last = std::max(deadline, Clock::real().now() + std::chrono::seconds(1));
  for (const auto& server : {&http_, &admin_http_})
    if (*server) (*server)->wait_idle(last);
  for (const auto& server : {&grpc_, &admin_grpc_})
    if (*server) (*server)->wait_idle(last);
  for (const auto& server : {&http_, &admin_http_})
    if (*server) (*server)->stop();
  for (const auto& server : {&grpc_, &admin_grpc_})
    if (*server) (*server)->stop();
}

Status check_files(const Config& config) {
  RETURN_IF_ERROR(Access::make(access_options(config)).status());
  for (const TlsFiles* tls : {&config.tls, &config.admin_tls})
    if (tls->any()) RETURN_IF_ERROR(CertificateStore::make(*tls).status());
  ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::open(config.base));
  ASSIGN_OR_RETURN(const auto text, checkpoint_text(*checkpoint));
  if (!text) return no_tokenizer(config.base);
  const std::string own_name = model_name_of(config.base);
  RETURN_IF_ERROR(Catalog::make(served_name(config, own_name), config.variants, text).status());
  VariantLoadOptions options;
  options.architecture = checkpoint->config().architecture;
  ASSIGN_OR_RETURN(options.base_digest, base_digest(*checkpoint));
  RETURN_IF_ERROR(ShardMap::make(checkpoint->config(), config.tensor_parallel).status());
  const WeightTable table = make_weight_table(checkpoint->config());
  for (const VariantSource& variant : config.variants)
    RETURN_IF_ERROR(check_variant_header(variant.path, table, options)
                        .in(fmt::format("variant '{}'", variant.name)));
  return config.watch.folder.empty() ? Status() : check_watched(config.watch.folder);
}

}  // namespace deltad
