// The keys under `server.tls` and `server.admin.tls`. Main thread.
#include "deltad/config.h"
#include "deltad/config_keys.h"

namespace deltad {

using namespace config_keys;

namespace {

std::vector<Key> keys_of(TlsFiles Config::*files) {
  const auto file = [files](std::string TlsFiles::*member) {
    return text([files, member](Config& c) -> std::string& { return c.*files.*member; });
  };
  return {
      {"certificate", "the path of a PEM file", file(&TlsFiles::certificate)},
      {"key", "the path of a PEM file", file(&TlsFiles::key)},
      {"client_ca", "the path of a PEM file", file(&TlsFiles::client_ca)},
  };
}

}  // namespace

const std::vector<Key>& tls_keys() {
  static const std::vector<Key> keys = keys_of(&Config::tls);
  return keys;
}

const std::vector<Key>& admin_tls_keys() {
  static const std::vector<Key> keys = keys_of(&Config::admin_tls);
  return keys;
}

}  // namespace deltad
