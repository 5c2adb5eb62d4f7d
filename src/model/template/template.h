// Chats as text and tokens: an interpreter of the part of Jinja that models use, in a sandbox
// (docs/decisions/0012-a-template-interpreter-of-our-own.md), and the messages it is given.
//
// May include: base, base/file, base/structured, model/text/tokenizer, model/text/unicode, model/text/vocabulary.
// Offers: answer_form.h, messages.h.
#pragma once

#include "model/template/chat.h"
#include "model/template/chat_template.h"
