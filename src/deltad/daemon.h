// Daemon: the parts of deltad wired together, and their life: listen, load, serve, drain. Owned by
// main, used by its thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "deltad/config.h"
#include "engine/base_model.h"
#include "router/folder_watcher.h"
#include "server/access/access.h"
#include "server/admin/api.h"
#include "server/file_poll.h"
#include "server/http/http_server.h"
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

  bool loaded() const { return loaded_; }
  Status failure() const;  // of loading; OK while none
  // Refuses new requests, lets running ones finish for at most the configured time, then closes.
  void drain();

 private:
  Daemon(const Config& config, std::unique_ptr<Access> access);
  Status load();
  Status open_certificates();
  Status poll_files();

  const Config config_;
  Observer observer_;
  const std::unique_ptr<Access> access_;
  OpenAiApi api_;
  AdminApi admin_api_;
  std::unique_ptr<CertificateStore> certificates_, admin_certificates_;  // null: no TLS
  std::unique_ptr<HttpServer> http_, admin_http_;
  std::unique_ptr<BaseModel> base_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<PoolService> pool_;       // null: none configured
  std::unique_ptr<FolderWatcher> watcher_;  // null: none configured
  std::unique_ptr<FilePoll> polled_;        // the files that are read anew when they change
  std::thread loader_;
  std::atomic<bool> loaded_{false};
  mutable Mutex mutex_;
  Status failure_ GUARDED_BY(mutex_);
};

// Everything that can be said of a config without loading weights: the base exists, the variants
// are made for it as far as their headers say, and what is to be watched is a folder.
Status check_files(const Config& config);

}  // namespace deltad
