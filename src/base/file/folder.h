// Folders listed and removed. The standard library's iterators over folders, and what uses them, end the program where
// no memory is left for a name (libstdc++ 12: directory_iterator advances in a noexcept function); these do not. Proved
// by tests/base/folder_test.cpp.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace lumen {

// The path of each entry of a folder, in the order of their bytes. "" is no folder.
// Error when the folder cannot be read; with `failure` what was read until then, and the reason there.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder, std::error_code& failure);

inline constexpr int kAnyDepth = 4096;
// The same of the folder and all folders in it, `deepest` levels down (0: as list_folder). A folder's own path comes
// before what it holds. Links are listed and not followed. Error when a folder cannot be read; with `failure` those
// that may not be read are passed over.
std::vector<std::filesystem::path> list_below(const std::filesystem::path& folder);
std::vector<std::filesystem::path> list_below(const std::filesystem::path& folder, std::error_code& failure,
                                              int deepest = kAnyDepth);

// Removes a file, a link, or a folder and all it holds, as far as that is possible; what is not there is no failure.
// `failure`: the first reason why something stays, otherwise cleared.
void remove_tree(const std::filesystem::path& path, std::error_code& failure) noexcept;
// Error when something stays.
void remove_tree(const std::filesystem::path& path);

}  // namespace lumen
