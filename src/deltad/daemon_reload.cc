// Daemon::reload: another config while the server runs. First everything is looked at that could be
// wrong with it, so that it is applied whole or not at all.
#include <fmt/format.h>

#include "base/log.h"
#include "delta/loader.h"
#include "deltad/daemon.h"

namespace deltad {
namespace {

// What was good a moment ago: its file has changed since, or somebody else was quicker.
void report(const char* what, const std::string& name, const Status& status) {
  if (!status.ok()) log_error("reload: variant {} is not {}: {}", name, what, status.message());
}

}  // namespace

Status Daemon::reload(const Config& fresh) {
  notifier_.reloading();
  Status status = loaded_ ? Status() : unavailable("the model is still being loaded");
  if (status.ok()) {
    const Result<ConfigDiff> changes = diff(config_, fresh);
    status = changes.ok() ? check(*changes, fresh) : changes.status();
    if (status.ok()) apply(*changes, fresh);
  }
  observer_.metrics().config_reloaded(status.ok());
  if (loaded_) notifier_.ready("serving");
  return status;
}

Status Daemon::refuse_reload(Status why) {
  observer_.metrics().config_reloaded(false);
  return why;
}

Status Daemon::check(const ConfigDiff& diff, const Config& fresh) const {
  VariantLoadOptions options;
  options.base_digest = base_->digest;
  options.architecture = base_->config().architecture;
  const std::string& base_name = router_->base_name();
  const auto check_variant = [&](const VariantSource& variant) {
    RETURN_IF_ERROR(Catalog::prepare(base_name, variant, base_->text).status());
    return check_variant_header(variant.path, base_->table, options)
        .in(fmt::format("variant '{}'", variant.name));
  };
  for (const VariantSource& variant : diff.added) {
    if (router_->variant(variant.name).ok())
      return conflict(
          fmt::format("variant '{}' is there already: the admin API, the watched folder "
                      "or the adapter pool brought it",
                      variant.name));
    RETURN_IF_ERROR(check_variant(variant));
  }
  for (const VariantSource& variant : diff.replaced) RETURN_IF_ERROR(check_variant(variant));
  RETURN_IF_ERROR(Access::make(access_options(fresh)).status());
  // The last, as it does what it asks for.
  if (fresh.router.cache_bytes != config_.router.cache_bytes)
    RETURN_IF_ERROR(
        router_->set_cache_bytes(fresh.router.cache_bytes).in("key 'variant_cache.memory'"));
  return Status();
}

void Daemon::apply(const ConfigDiff& diff, const Config& fresh) {
  set_log_level(fresh.log_level);
  set_log_format(fresh.log_format);
  observer_.set_ratio(fresh.trace_ratio);
  if (const Status status = access_->replace_keys(fresh.api_keys, fresh.admin_api_keys);
      !status.ok())
    log_error("reload: API keys stay as they were: {}", status.message());
  engine_->set_weights(fresh.engine.weights);
  router_->set_load_rate(fresh.router.bytes_per_second);
  router_->set_queue_bounds(most_waiting(fresh), fresh.router.max_waiting_per_variant);
  for (const std::string& name : diff.removed) report("removed", name, router_->remove(name));
  for (const std::string& name : diff.unpinned) report("unpinned", name, router_->unpin(name));
  for (const VariantSource& variant : diff.replaced)
    report("replaced", variant.name, router_->replace(variant));
  for (const VariantSource& variant : diff.added)
    report("added", variant.name, router_->add(variant));
  for (const VariantSource& variant : diff.limited)
    report("limited", variant.name, router_->set_limit(variant.name, variant.limit));
  for (const VariantSource& variant : diff.pinned)
    report("pinned", variant.name, router_->pin(variant.name));
  config_ = fresh;
  set_serving(config_);
  api_.readiness().set_ready(serving());
  admin_api_.readiness().set_ready(serving());
  std::string keys;
  for (const std::string& key : diff.keys) keys += (keys.empty() ? "" : ", ") + key;
  log_info("config read anew: {}", keys.empty() ? "nothing has changed" : keys + " changed");
}

}  // namespace deltad
