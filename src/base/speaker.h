// Who speaks, where several processes do one thing: the first tells people what goes on, the others keep notes and
// warnings to themselves, and what goes wrong in one of them is told with its number. Proved by
// tests/base/speaker_test.cpp.
#pragma once

#include <string>

namespace lumen {

// This process is number `rank` of several; -1: alone, as every process begins.
void speak_as(int rank);
bool is_hushed();            // it is another than the first
std::string speaker_name();  // "rank 2: ", of others than the first

}  // namespace lumen
