// MemoryAccount: the large pieces of memory that a merge holds, charged as they come and go, so
// that its peak is known and can be told. Any thread.
#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace deltad {

class MemoryAccount {
 public:
  class Charge {
   public:
    Charge(MemoryAccount& account, int64_t bytes) : account_(account), bytes_(bytes) {
      account_.add(bytes_);
    }
    ~Charge() { account_.add(-bytes_); }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

   private:
    MemoryAccount& account_;
    const int64_t bytes_;
  };

  int64_t peak() const {
    MutexLock lock(mutex_);
    return peak_;
  }

 private:
  void add(int64_t bytes) {
    MutexLock lock(mutex_);
    held_ += bytes;
    if (held_ > peak_) peak_ = held_;
  }

  mutable Mutex mutex_;
  int64_t held_ GUARDED_BY(mutex_) = 0;
  int64_t peak_ GUARDED_BY(mutex_) = 0;
};

}  // namespace deltad
