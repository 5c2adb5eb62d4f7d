// needs: none. Pictures of requests: where their bytes are found, which addresses are refused, and how they stand in
// messages and prompts. Servers are in tests/cli/serve/pictures_check.py.
#include "model/serve/pictures/pictures.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "model/serve/conversation/conversation.h"
#include "model/serve/forms/forms.h"
#include "model/serve/pictures/picture_chat.h"
#include "model/serve/pictures/picture_parts.h"
#include "model/templates/chat.h"
#include "model/templates/messages.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const std::string& text) {
  return ordered_json::parse(text);
}

std::string fault_of(const PictureSource& source, const std::string& address) {
  try {
    (void)source.read(address, {});
  } catch (const PictureFault& fault) {
    return fault.what();
  }
  return {};
}

TEST(PictureSource, ReadsDataUrls) {
  const PictureSource source({.most_bytes = 1024});
  EXPECT_EQ(source.read("data:image/png;base64,YWJj", {}).bytes, "abc");
  EXPECT_EQ(source.read("data:image/png;base64,YWJj", {}).media_type, "image/png");
  EXPECT_EQ(source.read("DATA:Image/PNG;name=a;BASE64,YWJj", {}).media_type, "image/png");
  EXPECT_EQ(source.read("data:;base64,YWI=", {}).bytes, "ab");
  EXPECT_EQ(source.read("data:;base64,YWI", {}).bytes, "ab");
  EXPECT_EQ(source.read("data:;base64,YW\r\n Jj", {}).bytes, "abc");
  EXPECT_EQ(source.read("data:;base64,-_-_", {}).bytes, source.read("data:;base64,+/+/", {}).bytes);
  EXPECT_EQ(source.read("data:;base64,%2B/%2b/", {}).bytes, source.read("data:;base64,+/+/", {}).bytes);
  for (const char* wrong :
       {"data:", "data:image/png", "data:image/png,YWJj", "data:;base64,", "data:;base64,===", "data:;base64,Y",
        "data:;base64,YWJjY", "data:;base64,Y=Jj", "data:;base64,YWJ!", "data:;base64,%zzYW", "data:;base64,%2"})
    EXPECT_NE(fault_of(source, wrong), "") << wrong;
  EXPECT_EQ(source.read("data:;base64," + std::string(1364, 'A'), {}).bytes.size(), 1023U);
  EXPECT_NE(fault_of(source, "data:;base64," + std::string(1368, 'A')).find("more than"), std::string::npos);
}

TEST(PictureSource, FilesAreThoseOfItsFolders) {
  const std::filesystem::path root = std::filesystem::temp_directory_path() / "lumen_picture_source";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root / "in/deep");
  std::filesystem::create_directories(root / "in2");
  for (const char* name : {"in/a", "in/deep/b c", "in2/secret", "secret"}) std::ofstream(root / name) << name;
  std::filesystem::create_symlink(root / "secret", root / "in/link");
  std::filesystem::create_symlink(root / "in/a", root / "in/own");
  const PictureSource source({.folders = {root / "in/"}, .most_bytes = 1024});
  const std::string in = (root / "in").string();
  EXPECT_EQ(source.read("a", {}).bytes, "in/a");
  EXPECT_EQ(source.read("own", {}).bytes, "in/a");
  EXPECT_EQ(source.read(in + "/a", {}).bytes, "in/a");
  EXPECT_EQ(source.read("file://" + in + "/deep/b%20c", {}).bytes, "in/deep/b c");
  EXPECT_EQ(source.read("file:" + in + "/deep/../a", {}).bytes, "in/a");
  const std::string none = fault_of(source, "missing");
  EXPECT_NE(none.find("no file in a folder"), std::string::npos);
  // One answer for all that is outside, whether it exists or not.
  const std::vector<std::string> all = {
      "link", "../secret",         in + "2/secret",      (root / "secret").string(), "deep", "/etc/passwd", ".", "..",
      "",     "deep/../../secret", "file:///etc/passwd", "file://%2e%2e/secret"};
  for (const std::string& outside : all)
    EXPECT_NE(fault_of(source, outside).find("no file in a folder"), std::string::npos) << outside;
  EXPECT_NE(fault_of(PictureSource({}), in + "/a").find("reads no files"), std::string::npos);
  EXPECT_THROW(PictureSource({.folders = {root / "nowhere"}}), Error);
  EXPECT_THROW(PictureSource({.folders = {root / "secret"}}), Error);
  std::filesystem::remove_all(root);
}

TEST(PictureSource, OtherAddressesAreRefused) {
  const PictureSource closed({});
  for (const char* url : {"http://a.example/b", "https://a.example/b", "HTTP://a.example/b"})
    EXPECT_NE(fault_of(closed, url).find("fetches no pictures"), std::string::npos) << url;
  const PictureSource open({.urls = PictureUrls::on});
  for (const char* url : {"http://", "http://a b/", "http://user@a.example/", "https://a.example:99999/"})
    EXPECT_NE(fault_of(open, url).find("no address of a picture"), std::string::npos) << url;
  EXPECT_NE(fault_of(open, "ftp://a.example/b").find("no address that is read"), std::string::npos);
  EXPECT_NE(fault_of(open, "javascript:1").find("no address that is read"), std::string::npos);
}

TEST(PictureParts, AreTakenOutInOrder) {
  ordered_json messages = json_of(R"([{"role": "user", "content": "a"}, {"role": "user", "content": [
    {"type": "text", "text": "b"}, {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
    {"type": "image_url", "image_url": "v"}, {"type": "text", "text": "c"}]}])");
  const std::vector<PicturePart> parts = take_pictures(messages);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].address, "u");
  EXPECT_EQ(parts[0].where, "messages[1].content[1]");
  EXPECT_EQ(parts[1].address, "v");
  const ordered_json normal =
      templates::normal_messages(messages, templates::OtherKeys::refused, templates::PictureParts::kept);
  EXPECT_EQ(normal[1]["content"], json_of(R"([{"type": "text", "text": "b"}, {"type": "image"}, {"type": "image"},
                                              {"type": "text", "text": "c"}])"));
  EXPECT_EQ(templates::normal_messages(normal, templates::OtherKeys::refused, templates::PictureParts::kept), normal);
  // Rows of data have none.
  EXPECT_THROW(templates::normal_messages(messages), templates::MessageFault);
  for (const char* wrong : {R"({"type": "image_url"})", R"({"type": "image_url", "image_url": {}})",
                            R"({"type": "image"})", R"({"type": "image_url", "image_url": {"url": 1}})"}) {
    ordered_json one = json_of(R"([{"role": "user", "content": []}])");
    one[0]["content"].push_back(json_of(wrong));
    EXPECT_THROW(take_pictures(one), PictureFault) << wrong;
  }
}

TEST(PictureParts, ContentsAreStringsUntilTheyHavePictures) {
  MixedContent content;
  EXPECT_EQ(content.json(), "");
  content.add_text("a");
  content.add_text("b");
  EXPECT_EQ(content.json(), "ab");
  content.add_picture("u");
  EXPECT_EQ(content.json().size(), 3U);
  EXPECT_EQ(content.json()[2]["image_url"]["url"], "u");
}

TEST(PictureParts, MediaTypesFitTheirBytes) {
  EXPECT_EQ(media_fit("image/png", "\x89PNG\r\n"), MediaFit::fits);
  EXPECT_EQ(media_fit("image/jpg", "\xff\xd8\xff"), MediaFit::fits);
  EXPECT_EQ(media_fit("", "anything"), MediaFit::fits);
  EXPECT_EQ(media_fit("image/*", "anything"), MediaFit::fits);
  EXPECT_EQ(media_fit("image/png", "\xff\xd8\xff"), MediaFit::other_picture);
  EXPECT_EQ(media_fit("image/webp", "BM"), MediaFit::other_picture);
  EXPECT_EQ(media_fit("image/gif", "GIF89a"), MediaFit::no_picture);
  EXPECT_EQ(media_fit("text/html", "\x89PNG"), MediaFit::no_picture);
}

TEST(PictureParts, OtherApisHaveThem) {
  const ordered_json said = chat_of_messages(json_of(R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "a"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"}},
        {"type": "image", "source": {"type": "url", "url": "http://a.example/b"}}, {"type": "text", "text": "b"}]}]})"),
                                             false);
  const ordered_json want = json_of(R"([{"type": "text", "text": "a"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}},
    {"type": "image_url", "image_url": {"url": "http://a.example/b"}}, {"type": "text", "text": "b"}])");
  EXPECT_EQ(said["messages"][0]["content"], want);
  const ResponseStore store;
  const ordered_json item = json_of(R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"},
    {"type": "input_image", "image_url": "u", "detail": "auto"}]}]})");
  EXPECT_EQ(read_responses(item, store).chat["messages"][0]["content"][1]["image_url"]["url"], "u");
  const OllamaAsk ask =
      read_ollama_chat(json_of(R"({"messages": [{"role": "user", "content": "a", "images": ["YWJj", "YQ=="]}]})"));
  EXPECT_EQ(ask.body["messages"][0]["content"], json_of(R"([
    {"type": "image_url", "image_url": {"url": "data:image/*;base64,YWJj"}},
    {"type": "image_url", "image_url": {"url": "data:image/*;base64,YQ=="}}, {"type": "text", "text": "a"}])"));
  // An answer has no pictures.
  EXPECT_THROW(chat_of_messages(json_of(R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]}]})"),
                                false),
               Refusal);
}

templates::ChatRenderer renderer(const std::string& text) {
  return {text::Tokenizer::characters("abcdefghijklmnopqrstuvwxyz<>[]{}':., "), templates::ChatTemplate::parse(text)};
}

std::string shown(const std::string& text, const ordered_json& messages, const arch::PictureText& how) {
  return picture_prompt(renderer(text), messages, ordered_json::object(), templates::PromptEnd::closed, how).text;
}

TEST(PicturePrompts, TemplatesShowThemInTheirOrder) {
  const ordered_json messages =
      json_of(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"},
    {"type": "text", "text": "b"}, {"type": "image"}]}, {"role": "user", "content": "c"}])");
  const std::string parts =
      "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for p in m['content'] %}{% "
      "if p['type'] == 'image' %}[i]{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}";
  EXPECT_EQ(shown(parts, messages, {"[i]", "[i]"}), "a[i]b[i]c");
  // What the template writes can be less than what the model reads.
  EXPECT_EQ(shown(parts, messages, {"<i>", "i", "[i]"}), "a<i>b<i>c");
  // A template that only knows strings, and one that would print the list.
  EXPECT_EQ(shown("{% for m in messages %}{{ m['content'] | trim }}{% endfor %}", messages, {"<pic>", "<pic>"}),
            "a<pic>b<pic>c");
  EXPECT_TRUE(writes_pictures(renderer(parts)));
  EXPECT_FALSE(writes_pictures(renderer("{% for m in messages %}{{ m['content'] }}{% endfor %}")));
  // Where no one has their rows, they are an error.
  EXPECT_THROW(renderer(parts).prompt(messages, ordered_json::object()), Error);
}

TEST(PicturePrompts, InstructionsStandBeforeThem) {
  const templates::ChatRenderer chat =
      renderer("{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}");
  const ordered_json mapped =
      mapped_roles(json_of(R"([{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "image"}]}])"),
                   learn_roles(chat), chat);
  EXPECT_EQ(mapped,
            json_of(R"([{"role": "user", "content": [{"type": "text", "text": "s\n\n"}, {"type": "image"}]}])"));
  const ordered_json behind =
      mapped_roles(json_of(R"([{"role": "user", "content": [{"type": "image"}]}, {"role": "system", "content": "s"}])"),
                   learn_roles(chat), chat);
  EXPECT_EQ(behind,
            json_of(R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "\n\ns"}]}])"));
}

}  // namespace
}  // namespace lumen::model::serve
