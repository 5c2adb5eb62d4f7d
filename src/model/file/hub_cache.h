// Finds models of the local Hugging Face cache by name. Nothing is downloaded. The cache is, in this order,
// $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub: the
// first variable that is set decides. Proved by tests/model/file/hub_cache_test.cpp.
#pragma once

#include <filesystem>
#include <string>

namespace lumen::model {

std::filesystem::path hub_cache();

// "user/repo", or "user/repo:PART" for the one GGUF file whose name contains PART (case does not matter): the folder of
// its snapshot, or the file. When it is missing, an Error with the searched folder and how to get the model.
std::filesystem::path resolve_hub(const std::string& name);

// The same for "hf:user/repo"; other paths unchanged.
std::filesystem::path resolve_path(const std::filesystem::path& path);

}  // namespace lumen::model
