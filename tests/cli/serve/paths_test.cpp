// needs: none. Paths of the server, their methods and the names in them.
#include "cli/serve/paths.h"

#include <gtest/gtest.h>

namespace lumen::cli {
namespace {

TEST(ServePaths, APathIsFoundWithSlashesAtItsEnd) {
  for (const char* path : {"/v1/chat/completions", "/v1/chat/completions/", "/chat/completions//"}) {
    const FoundPath found = find_path(path);
    ASSERT_NE(found.served, nullptr) << path;
    EXPECT_EQ(found.served->action, Action::chat);
  }
  EXPECT_EQ(find_path("/").served->action, Action::page);
  for (const char* path : {"", "/nothing", "/v1", "/v1/chat", "/v1/chat/completions/x", "/API/tags"})
    EXPECT_EQ(find_path(path).served, nullptr) << path;
}

TEST(ServePaths, NamesAreTakenFromPaths) {
  EXPECT_EQ(find_path("/v1/models/org/name").name, "org/name");
  EXPECT_EQ(find_path("/v1/responses/resp_1").name, "resp_1");
  const FoundPath cancel = find_path("/v1/responses/resp_1/cancel");
  EXPECT_EQ(cancel.name, "resp_1");
  EXPECT_EQ(cancel.served->action, Action::cancel_response);
  ASSERT_NE(find_path("/v1/responses/").served, nullptr);
  EXPECT_EQ(find_path("/v1/responses/").served->action, Action::responses);
}

TEST(ServePaths, MethodsAreThoseOfTheList) {
  const ServedPath& one = *find_path("/v1/responses/x").served;
  EXPECT_TRUE(one.takes("GET") && one.takes("HEAD") && one.takes("DELETE"));
  EXPECT_FALSE(one.takes("POST") || one.takes("GET, HEAD") || one.takes("") || one.takes("ET"));
  EXPECT_FALSE(find_path("/api/chat").served->takes("GET"));
}

TEST(ServePaths, ErrorsHaveTheFormOfTheApi) {
  EXPECT_EQ(error_form("/api/pull"), ErrorForm::ollama);
  EXPECT_EQ(error_form("/v1/messages/"), ErrorForm::anthropic);
  EXPECT_EQ(error_form("/v1/messages/batches"), ErrorForm::anthropic);
  EXPECT_EQ(error_form("/v2/rerank"), ErrorForm::openai);
  EXPECT_FALSE(find_path("/slots").served->is_open);
  EXPECT_TRUE(find_path("/health").served->is_open);
}

}  // namespace
}  // namespace lumen::cli
