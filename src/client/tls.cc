#include "client/tls.h"

#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace deltad::client {
namespace {

std::string openssl_reason() {
  const char* reason = nullptr;
  for (unsigned long error; (error = ::ERR_get_error()) != 0;)
    if (const char* text = ::ERR_reason_error_string(error)) reason = text;
  return reason != nullptr ? reason : "unknown";
}

Status unusable(const std::string& file, const char* expected) {
  return invalid_argument(fmt::format("{}: {}; {} was expected", file, openssl_reason(), expected));
}

// OpenSSL's own would ask at the terminal.
int no_password(char*, int, int, void*) { return -1; }

using Context = std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)>;

Result<Context> make_context(const TlsOptions& options) {
  Context context(::SSL_CTX_new(::TLS_client_method()), &::SSL_CTX_free);
  if (context == nullptr) return internal_error("no TLS: " + openssl_reason());
  ::SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  ::SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  if (options.check_server) {
    ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    if (options.authorities.empty())
      ::SSL_CTX_set_default_verify_paths(context.get());
    else if (::SSL_CTX_load_verify_file(context.get(), options.authorities.c_str()) != 1)
      return unusable(options.authorities, "PEM");
  }
  if (options.certificate.empty() != options.key.empty())
    return invalid_argument("a client's certificate and its key must be given together");
  if (!options.certificate.empty()) {
    if (::SSL_CTX_use_certificate_chain_file(context.get(), options.certificate.c_str()) != 1)
      return unusable(options.certificate, "a certificate in PEM");
    if (::SSL_CTX_use_PrivateKey_file(context.get(), options.key.c_str(), SSL_FILETYPE_PEM) != 1)
      return unusable(options.key, "a private key in PEM without a password");
  }
  return context;
}

// The host that the server's certificate must be for.
bool expect_host(SSL* session, const std::string& host) {
  X509_VERIFY_PARAM* rules = ::SSL_get0_param(session);
  if (::X509_VERIFY_PARAM_set1_ip_asc(rules, host.c_str()) == 1) return true;
  return ::SSL_set_tlsext_host_name(session, host.c_str()) == 1 &&
         ::X509_VERIFY_PARAM_set1_host(rules, host.c_str(), host.size()) == 1;
}

}  // namespace

void TlsSession::Free::operator()(SSL* session) const { ::SSL_free(session); }

TlsSession::TlsSession(const Socket& socket, const ServerUrl& url, SSL* session)
    : socket_(&socket), url_(&url), session_(session) {}

Result<TlsSession> TlsSession::open(const Socket& socket, const ServerUrl& url,
                                    const TlsOptions& options) {
  ::ERR_clear_error();
  ASSIGN_OR_RETURN(const Context context, make_context(options));
  TlsSession tls(socket, url, ::SSL_new(context.get()));
  SSL* session = tls.session_.get();
  // Memory between OpenSSL and the socket: OpenSSL's own writes would raise SIGPIPE.
  BIO* in = ::BIO_new(::BIO_s_mem());
  BIO* out = ::BIO_new(::BIO_s_mem());
  if (session == nullptr || in == nullptr || out == nullptr) return internal_error("no memory");
  ::SSL_set_bio(session, in, out);
  ::SSL_set_connect_state(session);
  constexpr unsigned char kHttp1[] = "\x08http/1.1";
  ::SSL_set_alpn_protos(session, kHttp1, sizeof(kHttp1) - 1);
  if (!expect_host(session, url.host))
    return invalid_argument(fmt::format("\"{}\" is no host's name", url.host));
  RETURN_IF_ERROR(tls.handshake());
  return tls;
}

Status TlsSession::handshake() {
  for (;;) {
    const int result = ::SSL_do_handshake(session_.get());
    if (result == 1) return flush();
    const Status status = advance(result, "TLS");
    if (status.ok()) continue;
    const long verified = ::SSL_get_verify_result(session_.get());
    if (verified == X509_V_OK) return status;
    return unavailable(fmt::format("{}: its certificate is not believed: {}", url_->host_header(),
                                   ::X509_verify_cert_error_string(verified)));
  }
}

Status TlsSession::send(std::string_view bytes) {
  while (!bytes.empty()) {
    size_t taken = 0;
    const int result = ::SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &taken);
    RETURN_IF_ERROR(result == 1 ? flush() : advance(result, "cannot send"));
    bytes.remove_prefix(taken);
  }
  return {};
}

Result<size_t> TlsSession::receive(char* buffer, size_t size) {
  for (;;) {
    size_t taken = 0;
    const int result = ::SSL_read_ex(session_.get(), buffer, size, &taken);
    if (result == 1) return taken;
    if (::SSL_get_error(session_.get(), result) == SSL_ERROR_ZERO_RETURN) return size_t{0};
    RETURN_IF_ERROR(advance(result, "no answer"));
  }
}

// After a call that did not finish: sends what waits, and reads what it waits for.
Status TlsSession::advance(int result, const char* what) {
  const int error = ::SSL_get_error(session_.get(), result);
  RETURN_IF_ERROR(flush());  // an alert, too
  if (error != SSL_ERROR_WANT_READ)
    return unavailable(fmt::format("{}: {}: {}", url_->host_header(), what, openssl_reason()));
  char buffer[16384];
  ASSIGN_OR_RETURN(const size_t n, client::receive(*socket_, *url_, what, buffer, sizeof(buffer)));
  if (n == 0)
    return unavailable(fmt::format("{}: {}: the connection was cut", url_->host_header(), what));
  ::BIO_write(::SSL_get_rbio(session_.get()), buffer, static_cast<int>(n));
  return {};
}

Status TlsSession::flush() {
  char buffer[16384];
  for (int n; (n = ::BIO_read(::SSL_get_wbio(session_.get()), buffer, sizeof(buffer))) > 0;)
    RETURN_IF_ERROR(send_all(*socket_, *url_, {buffer, static_cast<size_t>(n)}));
  return {};
}

}  // namespace deltad::client
