#include "deltactl/tls_options.h"

namespace deltad {

void add_tls_options(Command* command, client::TlsOptions* tls) {
  command
      ->add_option("--cacert", tls->authorities,
                   "For https: PEM file of the authorities to believe (default: the system's)")
      ->environment("DELTAD_CACERT");
  Option* certificate = command->add_option(
      "--cert", tls->certificate, "PEM file of a certificate to show, if the server asks for one");
  Option* key = command->add_option("--key", tls->key, "PEM file of its key");
  certificate->needs(key);
  key->needs(certificate);
  command->add_flag("!--insecure", tls->check_server,
                    "Believe whoever answers; for checks on the machine itself");
}

}  // namespace deltad
