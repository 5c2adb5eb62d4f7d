// Options of pull, list, rm and ps.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"name", "pull",
            "Model on the hub: [hf:]USER/REPO[:QUANTIZATION], or USER/REPO/FILE.gguf; several are allowed"}
        .takes("NAME")
        .required(),
    Setting{"name", "rm", "Model in the cache, as `lumen list` names it; several are allowed"}.takes("NAME").required(),
    Setting{"--offline", "pull", "Use the cache and no network; HF_HUB_OFFLINE=1 means the same"},
    Setting{"--dry-run", "pull", "List the files and their sizes, and download nothing"}.no_variable(),
    Setting{"--retries", "pull", "Retries after a failure; each waits longer than the one before"}
        .with_default()
        .from(0, 100)
        .as_variable("LUMEN_PULL_RETRIES"),
    Setting{"--timeout", "pull", "Seconds to wait for a connection, and for data"}
        .with_default()
        .from(1, 3600)
        .as_variable("LUMEN_PULL_TIMEOUT"),
    Setting{"-y,--yes", "rm", "Remove without asking"}.no_variable(),
};

}  // namespace

std::span<const Setting> hub_rows() {
  return kRows;
}

}  // namespace lumen::cli
