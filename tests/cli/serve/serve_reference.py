#!/usr/bin/env python3
"""`lumen serve` by OpenAI's own client: models, completions, chats, calls, responses, streams, embeddings, errors; by the clients of Anthropic, Ollama and Cohere,
and by litellm, LangChain and LlamaIndex. A line tells of each that is not installed.

usage: serve_reference.py LUMEN      exit code 77: none of the libraries is installed, nothing was checked
"""
import importlib.util
import json
import math
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import serve_check

KEY = "sesame"


def check_openai(address):
    import openai
    client = openai.OpenAI(base_url=address + "/v1", api_key=KEY, max_retries=0)
    check_texts(openai, client)
    check_calls(openai, client)


def check_texts(openai, client):
    assert [m.id for m in client.models.list()] == ["served"]
    same = dict(model="served", prompt="Once upon a time", max_tokens=12, seed=5, extra_body={"ignore_eos": True})
    whole = client.completions.create(**same)
    pieces = list(client.completions.create(**same, stream=True, stream_options={"include_usage": True}))
    assert whole.choices[0].text == "".join(p.choices[0].text for p in pieces if p.choices)
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens == 12
    told = client.completions.create(**{**same, "max_tokens": 0}, echo=True, logprobs=2).choices[0]
    assert told.text == "Once upon a time" and len(told.logprobs.tokens) == whole.usage.prompt_tokens
    assert told.logprobs.token_logprobs[0] is None and all(len(top) in (2, 3) for top in told.logprobs.top_logprobs[1:])

    chat = dict(model="served", messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
                max_completion_tokens=8, seed=1, logprobs=True, top_logprobs=3, n=2, logit_bias={"5": -100})
    answer = client.chat.completions.create(**chat)
    streams = ["", ""]
    for piece in client.chat.completions.create(**chat, stream=True):
        for choice in piece.choices:
            streams[choice.index] += choice.delta.content or ""
    assert [c.message.content for c in answer.choices] == streams
    first = answer.choices[0].logprobs.content[0]
    assert len(first.top_logprobs) == 3 and first.logprob <= first.top_logprobs[0].logprob
    # What the client expects is read at once, and counted: as far as a random model cuts its text into the tokens that the text has by itself.
    long = dict(model="served", messages=chat["messages"], max_completion_tokens=40, seed=1)
    text = client.chat.completions.create(**long).choices[0].message.content
    known = client.chat.completions.create(**long, prediction={"type": "content", "content": text})
    assert known.choices[0].message.content == text and known.usage.completion_tokens_details.accepted_prediction_tokens > 0, known.usage
    formed = client.chat.completions.create(model="served", messages=chat["messages"], temperature=0, max_tokens=30, response_format={
        "type": "json_schema", "json_schema": {"name": "choice", "strict": True, "schema": {"enum": ["yes", "no"]}}}).choices[0]
    assert json.loads(formed.message.content) in ("yes", "no") and formed.finish_reason == "stop", formed

    # The client asks for base64 by itself; both forms are the same vectors.
    packed = [d.embedding for d in client.embeddings.create(model="served", input=["one", "two"]).data]
    plain = [d.embedding for d in client.embeddings.create(model="served", input=["one", "two"], encoding_format="float").data]
    assert all(math.isclose(a, b, abs_tol=1e-6) for x, y in zip(packed, plain) for a, b in zip(x, y)) and len(packed) == 2

    assert client.completions.create(**{**same, "model": "gpt-4o"}).model == "served"
    for error, ask in [(openai.BadRequestError, {"temperature": -1}),
                       (openai.BadRequestError, {"max_tokens": -2})]:
        try:
            client.completions.create(**{**same, **ask})
            raise AssertionError(f"{ask} was taken")
        except error as told:
            assert told.body["param"] == list(ask)[0], told.body
    try:
        client.with_options(api_key="wrong").models.list()
        raise AssertionError("a wrong key was taken")
    except openai.AuthenticationError:
        pass


QUESTION = [{"role": "user", "content": "Is it nice?"}]


def fits(arguments):
    assert arguments["city"] in ("Seoul", "Busan") and isinstance(arguments["days"], bool), arguments


def check_calls(openai, client):
    ask = dict(model="served", messages=QUESTION, tools=serve_check.TOOLS, tool_choice="required", parallel_tool_calls=False, seed=3)
    call = client.chat.completions.create(**ask).choices[0].message.tool_calls[0]
    fits(json.loads(call.function.arguments))
    with client.chat.completions.stream(**ask) as stream:
        for _ in stream:
            pass
        told = stream.get_final_completion().choices[0]
    assert told.finish_reason == "tool_calls" and told.message.tool_calls[0].function.arguments == call.function.arguments

    flat = [{"type": "function", **serve_check.TOOLS[0]["function"]}]
    said = client.responses.create(model="served", input="Is it nice?", tools=flat, tool_choice="required", parallel_tool_calls=False)
    fits(json.loads(said.output[0].arguments))
    more = client.responses.create(model="served", previous_response_id=said.id, max_output_tokens=5, extra_body={"ignore_eos": True},
                                   input=[{"type": "function_call_output", "call_id": said.output[0].call_id, "output": "rain"}])
    assert more.status == "incomplete" and more.output_text and more.usage.output_tokens == 5, more
    with client.responses.stream(model="served", input="Hello", max_output_tokens=8, extra_body={"seed": 1}) as stream:
        told = list(stream)
    assert told[-1].type in ("response.completed", "response.incomplete"), told[-1]
    assert told[-1].response.output_text == "".join(event.delta for event in told if event.type == "response.output_text.delta")
    again = client.responses.retrieve(said.id)
    assert again.output == said.output and again.status == said.status, again
    client.responses.delete(said.id)
    try:
        client.responses.retrieve(said.id)
        raise AssertionError("a deleted response was found")
    except openai.NotFoundError:
        pass


def check_anthropic(address):
    import anthropic
    client = anthropic.Anthropic(base_url=address, api_key=KEY, max_retries=0)
    tools = [{"name": "weather", "description": "What it is like.", "input_schema": serve_check.TOOLS[0]["function"]["parameters"]}]
    ask = dict(model="served", max_tokens=200, messages=QUESTION, tools=tools, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    said = client.messages.create(**ask)
    assert said.stop_reason == "tool_use" and said.content[0].name == "weather", said
    fits(said.content[0].input)
    with client.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use", final
    fits(final.content[0].input)
    count = client.messages.count_tokens(model="served", messages=QUESTION, tools=tools, system="Be brief.")
    assert count.input_tokens > said.usage.input_tokens
    result = [{"role": "assistant", "content": [block.model_dump() for block in said.content]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": said.content[0].id, "content": "rain"}]}]
    after = client.messages.create(model="served", max_tokens=5, messages=QUESTION + result, tools=tools, tool_choice={"type": "none"}, extra_body={"ignore_eos": True})
    assert after.stop_reason == "max_tokens" and after.usage.output_tokens == 5, after
    try:
        client.messages.create(model="served", max_tokens=1, messages=[])
        raise AssertionError("no message was taken")
    except anthropic.BadRequestError:
        pass


def check_langchain(address):
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    chat = ChatOpenAI(base_url=address + "/v1", api_key=KEY, model="served", max_tokens=200, temperature=0.5, seed=1, max_retries=0)
    said = chat.bind_tools(serve_check.TOOLS, tool_choice="weather").invoke("Is it nice?")
    assert said.tool_calls[0]["name"] == "weather", said
    fits(said.tool_calls[0]["args"])
    short = ChatOpenAI(base_url=address + "/v1", api_key=KEY, model="served", max_tokens=8, seed=1, max_retries=0)
    assert "".join(piece.content for piece in short.stream("Hello")) == short.invoke("Hello").content
    embeddings = OpenAIEmbeddings(base_url=address + "/v1", api_key=KEY, model="served", check_embedding_ctx_length=False)
    assert len(embeddings.embed_documents(["one", "two"])) == 2


def check_ollama(address):
    import ollama
    client = ollama.Client(host=address, headers={"Authorization": "Bearer " + KEY})
    options = {"seed": 1, "num_predict": 8, "num_ctx": 2048}
    assert client.list().models[0].model == "served" and client.ps().models[0].model == "served"
    assert "completion" in client.show("served").capabilities
    whole = client.chat("served", messages=QUESTION, options=options)
    pieces = list(client.chat("served", messages=QUESTION, options=options, stream=True))
    assert "".join(p.message.content for p in pieces) == whole.message.content and pieces[-1].done and whole.eval_count == pieces[-1].eval_count
    said = client.generate("served", prompt="Hello", options=options, raw=True)
    assert said.response == "".join(p.response for p in client.generate("served", prompt="Hello", options=options, raw=True, stream=True))
    formed = client.chat("served", messages=QUESTION, format={"enum": ["yes", "no"]}, options={"temperature": 0, "num_predict": 30})
    assert json.loads(formed.message.content) in ("yes", "no")
    assert len(client.embed("served", input=["one", "two"]).embeddings) == 2
    assert len(client.embeddings("served", prompt="one").embedding) > 0
    # A call is history of a conversation, with its result.
    history = QUESTION + [{"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Seoul", "days": True}}}]},
                          {"role": "tool", "tool_name": "weather", "content": "rain"}]
    assert client.chat("served", messages=history, tools=serve_check.TOOLS, options=options).message.role == "assistant"
    try:
        client.chat("served", messages=[{"role": "user", "content": "a", "images": [b"hi"]}])
        raise AssertionError("an image was taken")
    except ollama.ResponseError as told:
        assert told.status_code == 400 and "images" in told.error, told


def check_litellm(address):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its own copy of a table, instead of one from the network
    import litellm
    ask = dict(messages=QUESTION, max_tokens=8, seed=1, temperature=0.5)
    said = litellm.completion(model="openai/served", api_base=address + "/v1", api_key=KEY, **ask)
    streamed = litellm.completion(model="openai/served", api_base=address + "/v1", api_key=KEY, stream=True, **ask)
    assert "".join(p.choices[0].delta.content or "" for p in streamed) == said.choices[0].message.content
    own = litellm.completion(model="ollama_chat/served", api_base=address, api_key=KEY, messages=QUESTION, max_tokens=8)
    assert own.choices[0].message.role == "assistant"
    claude = litellm.completion(model="anthropic/served", api_base=address, api_key=KEY, messages=QUESTION, max_tokens=8)
    assert claude.usage.completion_tokens <= 8


def check_cohere(address):
    import cohere
    told = cohere.ClientV2(api_key=KEY, base_url=address).rerank(model="served", query="one", documents=["two", "one", "three"], top_n=2)
    assert len(told.results) == 2 and told.results[0].relevance_score >= told.results[1].relevance_score, told


def check_langchain_ollama(address):
    from langchain_ollama import ChatOllama, OllamaEmbeddings
    key = {"headers": {"Authorization": "Bearer " + KEY}}
    chat = ChatOllama(base_url=address, model="served", num_predict=8, seed=1, client_kwargs=key)
    assert "".join(piece.content for piece in chat.stream("Hello")) == chat.invoke("Hello").content
    assert len(OllamaEmbeddings(base_url=address, model="served", client_kwargs=key).embed_documents(["one", "two"])) == 2


def check_llama_index(address):
    from llama_index.llms.openai_like import OpenAILike
    model = OpenAILike(model="served", api_base=address + "/v1", api_key=KEY, is_chat_model=True, max_tokens=8, temperature=0.5, additional_kwargs={"seed": 1})
    said = model.complete("Hello").text
    assert [piece.text for piece in model.stream_complete("Hello")][-1] == said


LIBRARIES = {"openai": ("openai", check_openai), "anthropic": ("anthropic", check_anthropic), "ollama": ("ollama", check_ollama), "litellm": ("litellm", check_litellm),
             "cohere": ("cohere", check_cohere), "langchain-openai": ("langchain_openai", check_langchain), "langchain-ollama": ("langchain_ollama", check_langchain_ollama),
             "llama-index-llms-openai-like": ("llama_index.llms.openai_like", check_llama_index)}


def is_installed(module):
    """Whether a module is there, and those that it is in."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def try_libraries(libraries, address):
    """Runs what {distribution: (module, check)} says; returns the names and versions of those that are installed, and prints those that are not."""
    told = []
    for name, (module, check) in libraries.items():
        if is_installed(module):
            check(address)
            told.append(f"{name} {version(name)}")
        else:
            print(f"not tried: {name} is not installed (pip install {name})", flush=True)
    return told


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    if not any(is_installed(module) for module, _ in LIBRARIES.values()):
        print("skipped: none of these is installed:", ", ".join(LIBRARIES))
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="lumen-openai-") as folder:
        work = Path(folder)
        serve_check.make_model(lumen, work)
        (work / "calls.jinja").write_text(serve_check.TEMPLATE)
        served = serve_check.Served(lumen, work, "-m", "served.gguf", "--api-key", KEY, "--chat-template", "calls.jinja")
        try:
            told = try_libraries(LIBRARIES, f"http://127.0.0.1:{served.port}")
        finally:
            served.process.kill()
    print("serve: what these ask is answered: " + ", ".join(told))


if __name__ == "__main__":
    main()
