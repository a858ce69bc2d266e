#include "deltad/daemon.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>

#include "base/log.h"
#include "delta/checkpoint_text.h"
#include "delta/loader.h"
#include "server/generation/generation_plan.h"

namespace deltad {
namespace {

constexpr double kMiB = 1 << 20;

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

Status no_tokenizer(const std::string& base) {
  return invalid_argument(
      fmt::format("{}: no tokenizer.json: text cannot be served without one", base));
}

AccessOptions access_options(const Config& config) {
  AccessOptions options;
  options.api_keys = config.api_keys;
  options.admin_api_keys = config.admin_api_keys;
  options.keys_file = config.keys_file;
  return options;
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

Daemon::Daemon(const Config& config, std::unique_ptr<Access> access)
    : config_(config),
      access_(std::move(access)),
      api_(ApiOptions{config.cors_origins}, *access_, observer_),
      admin_api_(*access_, observer_) {}

Result<std::unique_ptr<Daemon>> Daemon::start(const Config& config,
                                              std::function<void()> on_failure) {
  ASSIGN_OR_RETURN(std::unique_ptr<Access> access, Access::make(access_options(config)));
  std::unique_ptr<Daemon> daemon(new Daemon(config, std::move(access)));
  RETURN_IF_ERROR(daemon->open_certificates());
  ASSIGN_OR_RETURN(daemon->http_,
                   HttpServer::start(config.http, daemon->api_, daemon->certificates_.get()));
  log_info("listening on {}", daemon->http_->address());
  if (!config.admin_listen.empty()) {
    HttpOptions admin = config.http;
    admin.listen = config.admin_listen;
    admin.threads = 1;
    ASSIGN_OR_RETURN(daemon->admin_http_, HttpServer::start(admin, daemon->admin_api_,
                                                            daemon->admin_certificates_.get()));
    log_info("admin API on {}", daemon->admin_http_->address());
  }
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
  return daemon;
}

Daemon::~Daemon() {
  if (loader_.joinable()) loader_.join();
  for (const auto& server : {&http_, &admin_http_})
    if (*server) (*server)->stop();
}

Status Daemon::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

Status Daemon::open_certificates() {
  if (config_.tls.any()) {
    ASSIGN_OR_RETURN(certificates_, CertificateStore::make(config_.tls));
  }
  const TlsFiles& admin = admin_tls_of(config_);
  if (admin.any() && !config_.admin_listen.empty()) {
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
  ASSIGN_OR_RETURN(
      base_, load_base_model(config_.base, config_.cpu,
                             [&](int64_t done, int64_t total) { progress.update(done, total); }));
  if (!base_->text) return no_tokenizer(config_.base);
  ASSIGN_OR_RETURN(engine_,
                   Engine::make(base_->config(), base_->table, *base_->backend, config_.engine));
  RouterOptions options = config_.router;
  options.base_name = served_name(config_, base_->name);
  options.base_digest = base_->digest;
  options.architecture = base_->config().architecture;
  if (options.max_waiting == 0)
    options.max_waiting = int64_t{config_.engine.max_waiting} + config_.engine.max_running;
  ASSIGN_OR_RETURN(router_, Router::make(options, config_.variants, base_->text, base_->table,
                                         *base_->backend, *engine_));
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

  Serving serving;
  serving.router = router_.get();
  serving.engine = engine_.get();
  serving.pool = pool_.get();
  serving.request_seconds = config_.request_seconds;
  serving.base_path = config_.base;
  serving.created = unix_now();
  serving.base_bytes = base_->backend->weight_bytes();
  loaded_ = true;
  api_.set_ready(serving);
  admin_api_.set_ready(serving);
  const EngineStats stats = engine_->stats();
  log_info(
      "ready after {:.1f} s: {} ({}), {:.0f} MiB of weights, {} variants, KV cache of {} tokens, "
      "context {}",
      seconds(Clock::real().now() - start), options.base_name, base_->backend->description(),
      static_cast<double>(base_->backend->weight_bytes()) / kMiB, router_->variants().size(),
      stats.kv_blocks * stats.block_tokens, engine_->max_context());
  return Status();
}

void Daemon::drain() {
  const TimePoint deadline = Clock::real().now() + from_seconds(config_.drain_seconds);
  api_.set_not_ready("The server is shutting down.");
  admin_api_.set_not_ready("The server is shutting down.");
  http_->drain();
  if (watcher_) watcher_->stop();
  if (pool_) pool_->stop();
  router_->shutdown(deadline);
  // Cancelled requests still get their last words.
  http_->wait_idle(std::max(deadline, Clock::real().now() + std::chrono::seconds(1)));
  http_->stop();
  if (admin_http_) admin_http_->stop();
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
  const WeightTable table = make_weight_table(checkpoint->config());
  for (const VariantSource& variant : config.variants)
    RETURN_IF_ERROR(check_variant_header(variant.path, table, options)
                        .in(fmt::format("variant '{}'", variant.name)));
  return config.watch.folder.empty() ? Status() : check_watched(config.watch.folder);
}

}  // namespace deltad
