// CertificateStore: a listener's certificate and key and, for clients that must show one, the
// authorities of theirs, read from files and read anew when those change. New connections get what
// was read last; open ones keep theirs. What cannot be read, or does not fit together, changes
// nothing. For HTTP as a context of OpenSSL, for gRPC as text. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

using SSL = struct ssl_st;
using SSL_CTX = struct ssl_ctx_st;

namespace deltad {

struct TlsFiles {
  std::string certificate;  // PEM: the server's own, then those up to the authority; "": no TLS
  std::string key;          // PEM, without a password
  std::string
      client_ca;  // PEM: authorities of clients, which then must show a certificate; "": none

  bool any() const { return !certificate.empty() || !key.empty() || !client_ca.empty(); }
  bool operator==(const TlsFiles&) const = default;
};

struct Certificates {  // the files' content, checked
  std::string certificate, key, client_ca;
};

class CertificateStore {
 public:
  // An error says which file is wrong, and how.
  static Result<std::unique_ptr<CertificateStore>> make(const TlsFiles& files);

  Status reload() EXCLUDES(mutex_);
  std::vector<std::string> files() const;

  // A session for one new connection, in the server's role; owned by the caller. Null: no memory.
  SSL* new_session() const EXCLUDES(mutex_);
  std::shared_ptr<const Certificates> current() const EXCLUDES(mutex_);
  // Called after each reload that changed something, on the thread that reloads.
  void on_change(std::function<void(const Certificates&)> changed) EXCLUDES(mutex_);

 private:
  explicit CertificateStore(TlsFiles files) : files_(std::move(files)) {}

  const TlsFiles files_;
  mutable Mutex mutex_;
  std::shared_ptr<const Certificates> current_ GUARDED_BY(mutex_);
  std::shared_ptr<SSL_CTX> context_ GUARDED_BY(mutex_);
  std::vector<std::function<void(const Certificates&)>> changed_ GUARDED_BY(mutex_);
};

}  // namespace deltad
