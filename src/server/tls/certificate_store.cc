#include "server/tls/certificate_store.h"

#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <utility>

#include "base/log.h"
#include "io/file_reader.h"

namespace deltad {
namespace {

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// A key with a password must be an error, not a question at the terminal.
int no_password(char*, int, int, void*) { return -1; }

Owned<BIO> reader_of(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// All certificates of a PEM text.
std::vector<Owned<X509>> certificates_of(const std::string& pem) {
  std::vector<Owned<X509>> all;
  const Owned<BIO> bio = reader_of(pem);
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr))
    all.emplace_back(one);
  // The end of the text is an error to it; one in the middle leaves its text unread.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) all.clear();
  return all;
}

Status in_file(const std::string& file, const std::string& what) {
  ERR_clear_error();
  return invalid_argument(fmt::format("{}: {}", file, what));
}

// The protocol that we speak, or none in common: then the handshake fails.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* offered, unsigned int size, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kOurs, sizeof(kOurs) - 1, offered, size) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Status set_certificate(SSL_CTX* context, const TlsFiles& files, const Certificates& text) {
  std::vector<Owned<X509>> chain = certificates_of(text.certificate);
  if (chain.empty())
    return in_file(files.certificate, "expected certificates in PEM, the server's own first");
  if (SSL_CTX_use_certificate(context, chain[0].get()) != 1)
    return in_file(files.certificate, "the server's certificate cannot be used: too weak a key?");
  for (size_t i = 1; i < chain.size(); ++i)
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1)
      return in_file(files.certificate, fmt::format("certificate {} cannot be used", i + 1));
  const Owned<BIO> bio = reader_of(text.key);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  if (!key) return in_file(files.key, "expected a private key in PEM without a password");
  if (X509_check_private_key(chain[0].get(), key.get()) != 1)
    return in_file(files.key, "this is not the key of the certificate in " + files.certificate);
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1)
    return in_file(files.key, "the key cannot be used");
  if (X509_cmp_current_time(X509_get0_notAfter(chain[0].get())) < 0)
    log_warning("{}: the certificate has expired; clients will refuse it", files.certificate);
  return Status();
}

Status set_client_ca(SSL_CTX* context, const TlsFiles& files, const Certificates& text) {
  const std::vector<Owned<X509>> authorities = certificates_of(text.client_ca);
  if (authorities.empty())
    return in_file(files.client_ca, "expected certificates of authorities in PEM");
  for (const auto& one : authorities) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get()) != 1 ||
        SSL_CTX_add_client_CA(context, one.get()) != 1)
      return in_file(files.client_ca, "a certificate cannot be used");
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return Status();
}

Result<std::shared_ptr<SSL_CTX>> make_context(const TlsFiles& files, const Certificates& text) {
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) return internal_error("OpenSSL gives no context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Idle connections give their buffers back.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  // Sessions are resumed by tickets, whose keys live and die with the context: what was agreed on
  // with old authorities is not resumed under new ones.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  static constexpr unsigned char kId[] = "deltad";
  SSL_CTX_set_session_id_context(context.get(), kId, sizeof(kId) - 1);
  RETURN_IF_ERROR(set_certificate(context.get(), files, text));
  if (!files.client_ca.empty()) RETURN_IF_ERROR(set_client_ca(context.get(), files, text));
  return context;
}

}  // namespace

Result<std::unique_ptr<CertificateStore>> CertificateStore::make(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty())
    return invalid_argument("TLS needs both a certificate and its key");
  std::unique_ptr<CertificateStore> store(new CertificateStore(files));
  RETURN_IF_ERROR(store->reload());
  return store;
}

std::vector<std::string> CertificateStore::files() const {
  std::vector<std::string> all = {files_.certificate, files_.key};
  if (!files_.client_ca.empty()) all.push_back(files_.client_ca);
  return all;
}

Status CertificateStore::reload() {
  auto text = std::make_shared<Certificates>();
  ASSIGN_OR_RETURN(text->certificate, read_file(files_.certificate));
  ASSIGN_OR_RETURN(text->key, read_file(files_.key));
  if (!files_.client_ca.empty()) {
    ASSIGN_OR_RETURN(text->client_ca, read_file(files_.client_ca));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<SSL_CTX> context, make_context(files_, *text));
  MutexLock lock(mutex_);
  current_ = text;
  context_ = std::move(context);
  return Status();
}

SSL* CertificateStore::new_session() const {
  std::shared_ptr<SSL_CTX> context;
  {
    MutexLock lock(mutex_);
    context = context_;
  }
  return SSL_new(context.get());
}

std::shared_ptr<const Certificates> CertificateStore::current() const {
  MutexLock lock(mutex_);
  return current_;
}

}  // namespace deltad
