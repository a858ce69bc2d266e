// Access: which keys there are, and who may do what: keys in the config (inline) and in a file of
// hashed keys that is read anew when it changes. Serves every protocol. Any thread; a reload swaps
// the whole table at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "server/access/caller.h"
#include "server/access/need.h"

namespace deltad {

struct AccessOptions {
  std::vector<std::string> api_keys;        // inline: all models, no admin
  std::vector<std::string> admin_api_keys;  // inline: the admin API only
  std::string keys_file;                    // "": none
  // Stand-ins for tests.
  const Clock* clock = &Clock::real();
  std::function<int64_t()> unix_now;  // empty: the system's
};

class Access {
 public:
  // Reads the file; an error says what is wrong with it, and where.
  static Result<std::unique_ptr<Access>> make(const AccessOptions& options);

  // Who has this key ("": none was sent). With Need::kNothing it is nobody in particular, whatever
  // was sent. So it is where no key is configured for what is needed: inference is open without
  // api_keys and keys_file, the admin API without admin_api_keys and keys_file.
  // kUnauthenticated: no key, unknown or expired; kPermissionDenied: not for this.
  Result<std::shared_ptr<const Caller>> identify(std::string_view key, Need need) const
      EXCLUDES(mutex_);

  // Whether anybody may, because no key is configured for it.
  bool open_for(Need need) const;

  // Nobody in particular, who may use every model.
  const std::shared_ptr<const Caller>& anybody() const { return anybody_; }

  // Reads the file anew. What was known stays if it is broken. Running requests go on.
  Status reload() EXCLUDES(mutex_);
  const std::string& keys_file() const { return options_.keys_file; }

 private:
  struct Known {
    KeyHash hash;
    std::shared_ptr<const Caller> caller;
    std::shared_ptr<KeyUse> use;
  };
  using Table = std::vector<Known>;

  explicit Access(const AccessOptions& options);
  std::shared_ptr<const Table> table() const EXCLUDES(mutex_);

  const AccessOptions options_;
  const std::shared_ptr<const Caller> anybody_;
  mutable Mutex mutex_;
  Mutex reload_;  // one at a time; taken before mutex_
  std::shared_ptr<const Table> table_ GUARDED_BY(mutex_);
};

// The key of an Authorization header or of gRPC's metadata: "Bearer KEY"; "": none.
std::string_view bearer_key(std::string_view authorization);

}  // namespace deltad
