#include "server/grpc/credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"

namespace deltad {
namespace {

// gRPC's C++ interface has no credentials that change but those that watch files by themselves,
// which would take what the store refuses. Its C interface asks before each handshake.
class StoreCredentials final : public grpc::ServerCredentials {
 public:
  explicit StoreCredentials(const CertificateStore& store)
      : store_(store),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                store.current()->client_ca.empty()
                    ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                    : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
                &StoreCredentials::fetch, this))) {}
  ~StoreCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    CHECK(false, "keys are checked by each call");
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<StoreCredentials*>(self)->fetch(config);
  }
  grpc_ssl_certificate_config_reload_status fetch(grpc_ssl_server_certificate_config** config) {
    std::shared_ptr<const Certificates> current = store_.current();
    MutexLock lock(mutex_);
    if (current == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {current->key.c_str(), current->certificate.c_str()};
    // gRPC ends the process where there are no authorities (1.51), though it asks nobody for a
    // certificate then and uses none.
    const std::string& authorities =
        current->client_ca.empty() ? current->certificate : current->client_ca;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    if (*config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    given_ = std::move(current);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const CertificateStore& store_;
  Mutex mutex_;
  std::shared_ptr<const Certificates> given_ GUARDED_BY(mutex_);
  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> server_credentials(const CertificateStore* store) {
  if (store == nullptr) return grpc::InsecureServerCredentials();
  return std::make_shared<StoreCredentials>(*store);
}

}  // namespace deltad
