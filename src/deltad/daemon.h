// Daemon: the parts of deltad wired together, and their life: listen, load, serve, drain. Owned by
// main, used by its thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "deltad/config.h"
#include "deltad/descriptors.h"
#include "deltad/engine_watchdog.h"
#include "deltad/heartbeat.h"
#include "deltad/service_notifier.h"
#include "engine/base_model.h"
#include "router/folder_watcher.h"
#include "server/access/access.h"
#include "server/admin/api.h"
#include "server/file_poll.h"
#include "server/grpc/grpc_server.h"
#include "server/http/http_server.h"
#include "server/observe/observer.h"
#include "server/observe/span_exporter.h"
#include "server/openai/api.h"
#include "server/tls/certificate_store.h"

namespace deltad {

class Daemon {
 public:
  // Listens at once (liveness is answered, readiness says no) and begins to load on a thread of its
  // own. on_failure is called from that thread if loading fails; failure() then says why.
  static Result<std::unique_ptr<Daemon>> start(const Config& config,
                                               std::function<void()> on_failure);
  ~Daemon();

  bool loaded() const { return loaded_; }  // and ready
  Status failure() const;                  // of loading; OK while none
  Status device_health() const;            // once loaded: not OK if it has failed for good
  // Goes on with this config. An error says why not, and then nothing has changed. Variants that
  // are replaced are read whole meanwhile.
  Status reload(const Config& fresh);
  // One that cannot be read: counted as a reload that was refused. Returns why.
  Status refuse_reload(Status why);
  double drain_seconds() const { return config_.drain_seconds; }
  // Refuses new requests, lets running ones finish for at most the configured time, then closes.
  void drain();

 private:
  Daemon(const Config& config, std::unique_ptr<Access> access, std::unique_ptr<SpanExporter> spans);
  Connections divide_connections() const;
  Status start_http(const Connections& connections);
  Status start_grpc(const Connections& connections);
  void update_health();
  Status load();
  void load_pinned();
  bool pinned(const std::string& name, bool tries, std::string* error);
  void beat();
  Status open_certificates();
  Status poll_files();
  Serving serving() const EXCLUDES(mutex_);
  void set_serving(const Config& config) EXCLUDES(mutex_);
  Status check(const ConfigDiff& diff, const Config& fresh) const;
  void apply(const ConfigDiff& diff, const Config& fresh);

  Config config_;  // of the main thread, once all is loaded
  const ServiceNotifier notifier_ = ServiceNotifier::from_environment();
  const std::unique_ptr<SpanExporter> spans_;  // null: nothing is traced
  Observer observer_;
  const std::unique_ptr<Access> access_;
  OpenAiApi api_;
  AdminApi admin_api_;
  std::unique_ptr<CertificateStore> certificates_, admin_certificates_;  // null: no TLS
  std::unique_ptr<HttpServer> http_, admin_http_;
  std::unique_ptr<GrpcServer> grpc_, admin_grpc_;  // null: none configured
  std::unique_ptr<BaseModel> base_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<PoolService> pool_;       // null: none configured
  std::unique_ptr<FolderWatcher> watcher_;  // null: none configured
  std::unique_ptr<FilePoll> polled_;        // the files that are read anew when they change
  int64_t loaded_at_ = 0;                   // unix seconds
  std::vector<std::string> backends_;       // by then
  std::unique_ptr<EngineWatchdog> watchdog_;
  std::thread loader_;
  std::atomic<bool> loaded_{false};
  std::atomic<bool> serves_{false};  // there is a watchdog
  std::unique_ptr<Heartbeat> heartbeat_;
  mutable Mutex mutex_;
  CondVar left_;
  bool leaving_ GUARDED_BY(mutex_) = false;
  Status failure_ GUARDED_BY(mutex_);
  Serving serving_ GUARDED_BY(mutex_);
};

// What follows from a config for parts of it.
AccessOptions access_options(const Config& config);
int64_t most_waiting(const Config& config);

// Everything that can be said of a config without loading weights: the base exists, the variants
// are made for it as far as their headers say, and what is to be watched is a folder.
Status check_files(const Config& config);

}  // namespace deltad
