#!/usr/bin/env python3
"""Official client libraries, and requests that programs were seen to send (tests/cli/serve/clients), on a model that other people trained:
SmolLM2-135M-Instruct (tools/real_models.sh), whose answers mean something. What is installed is tried, and a line tells of each library that is
not. Exit code 77 where the model cannot be had.

Usage: tests/real/clients_check.py LUMEN
"""
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import models_check
from models_check import QUESTION, WEATHER, WORLD

import clients_check
import serve_check
from serve_reference import KEY, LIBRARIES, try_libraries

# Functions and reasoning, which this model's own template does not have.
TEMPLATE = Path(__file__).resolve().parent / "chat_with_tools.jinja"
ASKED = [{"role": "user", "content": QUESTION}]
COUNTRY = "Describe a country as JSON."
GREEDY = {"model": "served", "temperature": 0}


def is_world(value):
    assert set(value) == set(WORLD["required"]) and value["country"] in WORLD["properties"]["country"]["enum"] and 0 <= value["people"] <= 2000000000, value


def world_class():
    """WORLD as programs write it."""
    from typing import Literal

    from pydantic import BaseModel, Field

    class World(BaseModel):
        country: Literal["France", "Korea", "Peru"]
        capital: str = Field(max_length=20)
        people: int = Field(ge=0, le=2000000000)

    return World


def openai_texts(openai, client):
    chat = {**GREEDY, "messages": ASKED, "max_tokens": 24}
    said = client.chat.completions.create(**chat).choices[0]
    assert "Paris" in said.message.content and said.finish_reason == "stop", said
    pieces = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == said.message.content and pieces[-1].usage.completion_tokens > 1
    with client.chat.completions.stream(**chat) as stream:
        assert stream.get_final_completion().choices[0].message.content == said.message.content
    prompts = ["The capital of France is", "The capital of Germany is"]
    both = client.completions.create(**GREEDY, prompt=prompts, max_tokens=12).choices
    assert "Paris" in both[0].text and "Berlin" in both[1].text, both
    text = both[0].text
    stopped = client.completions.create(**GREEDY, prompt=prompts[0], max_tokens=12, stop=[text[4:7]]).choices[0]
    assert stopped.text == text[:text.index(text[4:7])] and stopped.finish_reason == "stop", (stopped, text)
    wide = client.completions.create(model="served", prompt=prompts[0], n=3, seed=7, temperature=1, max_tokens=6, logprobs=2).choices
    assert len({c.text for c in wide}) > 1 and all(max(top.values()) >= p for c in wide for p, top in zip(c.logprobs.token_logprobs, c.logprobs.top_logprobs))
    tokens = [client.post("/../tokenize", body={"prompt": word}, cast_to=object)["tokens"][0] for word in ("Paris", " Paris")]
    other = client.chat.completions.create(**chat, logit_bias={str(t): -100 for t in tokens}).choices[0].message.content
    assert "Paris" not in other, other

    async def many():
        async with openai.AsyncOpenAI(base_url=client.base_url, api_key=KEY, max_retries=0) as other:
            async def one():
                stream = await other.chat.completions.create(**chat, stream=True)
                return "".join([piece.choices[0].delta.content or "" async for piece in stream])
            return await asyncio.gather(*(one() for _ in range(4)))

    assert set(asyncio.run(many())) == {said.message.content}


def openai_forms(openai, client):
    World = world_class()
    told = client.chat.completions.parse(model="served", messages=[{"role": "user", "content": COUNTRY}], response_format=World, temperature=0.7, seed=1, max_tokens=96)
    is_world(told.choices[0].message.parsed.model_dump())
    told = client.responses.parse(model="served", input=COUNTRY, text_format=World, max_output_tokens=96)
    is_world(told.output_parsed.model_dump())
    function = openai.pydantic_function_tool(World, name="remember", description="Remembers a country.")
    asked = {**GREEDY, "messages": [{"role": "user", "content": "Remember a country."}], "tools": [function], "max_tokens": 120, "reasoning_effort": "none"}
    call = client.chat.completions.parse(**asked, tool_choice={"type": "function", "function": {"name": "remember"}}).choices[0].message.tool_calls[0]
    is_world(call.function.parsed_arguments.model_dump())
    with client.chat.completions.stream(**asked, tool_choice="required", parallel_tool_calls=False) as stream:
        seen = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
        told = stream.get_final_completion().choices[0]
    assert told.finish_reason == "tool_calls" and "".join(e.arguments_delta for e in seen) == told.message.tool_calls[0].function.arguments, told
    call = told.message.tool_calls[0]
    back = asked["messages"] + [told.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "Done."}]
    after = client.chat.completions.create(**{**asked, "messages": back, "max_tokens": 8})
    assert after.usage.prompt_tokens > told_tokens(client, asked), after.usage


def told_tokens(client, asked):
    return client.chat.completions.create(**{**asked, "max_tokens": 1}).usage.prompt_tokens


def openai_reasoning(openai, client):
    """The template opens the reasoning, and the model fills it until it is told to end."""
    chat = {**GREEDY, "messages": ASKED, "max_tokens": 16}
    plain = client.chat.completions.create(**chat, reasoning_effort="none").choices[0].message
    assert plain.content and not getattr(plain, "reasoning_content", None), plain
    thought = client.chat.completions.create(**chat, reasoning_effort="low")
    message = thought.choices[0].message
    assert message.reasoning_content and not message.content and thought.usage.completion_tokens_details.reasoning_tokens > 0, thought
    pieces = [p.choices[0].delta for p in client.chat.completions.create(**chat, reasoning_effort="low", stream=True) if p.choices]
    assert "".join(getattr(p, "reasoning_content", None) or "" for p in pieces) == message.reasoning_content
    told = client.responses.create(**GREEDY, input=QUESTION, reasoning={"effort": "low"}, max_output_tokens=16)
    assert told.output[0].type == "reasoning" and told.output[0].content[0].text == message.reasoning_content, told
    with client.responses.stream(**GREEDY, input=QUESTION, reasoning={"effort": "low"}, max_output_tokens=16) as stream:
        deltas = [event.delta for event in stream if event.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == message.reasoning_content
    # What was thought before is part of the prompt where the template shows it.
    history = ASKED + [{"role": "assistant", "reasoning_content": "It is Paris. " * 9, "content": "Paris"}, {"role": "user", "content": "And of Peru?"}]
    with_it = client.chat.completions.create(**{**chat, "messages": history}).usage.prompt_tokens
    del history[1]["reasoning_content"]
    assert with_it > client.chat.completions.create(**{**chat, "messages": history}).usage.prompt_tokens + 20


def openai_stored(openai, client):
    first = client.responses.create(**GREEDY, input="My name is Ada.", instructions="Be brief.", max_output_tokens=12)
    second = client.responses.create(**GREEDY, previous_response_id=first.id, input="What is my name?", max_output_tokens=16)
    alone = client.responses.create(**GREEDY, input="What is my name?", max_output_tokens=16, store=False)
    said = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "What is my name?"}]
    whole = client.chat.completions.create(**GREEDY, messages=said, max_tokens=16).choices[0].message.content
    assert second.output_text == whole != alone.output_text, (second.output_text, whole, alone.output_text)
    assert second.previous_response_id == first.id and second.usage.input_tokens > alone.usage.input_tokens
    assert client.responses.retrieve(second.id).output_text == second.output_text
    for gone in (alone.id, "resp_none"):
        try:
            client.responses.retrieve(gone)
            raise AssertionError(f"'{gone}' is stored")
        except openai.NotFoundError:
            pass
    with client.responses.stream(**GREEDY, previous_response_id=second.id, input="Thank you.", max_output_tokens=8) as stream:
        last = list(stream)[-1].response
    client.responses.delete(first.id)
    assert client.responses.retrieve(last.id).previous_response_id == second.id


def openai_embeddings(openai, client):
    """One vector for a text, however it is asked for; texts of one kind are nearer to each other than to another."""
    texts = ["The cat sleeps on the sofa.", "A kitten is resting on the couch.", "Quarterly revenue grew by nine percent."]
    vectors = [d.embedding for d in client.embeddings.create(model="served", input=texts).data]
    alone = client.embeddings.create(model="served", input=texts[1], encoding_format="float").data[0].embedding
    near = lambda a, b: sum(x * y for x, y in zip(a, b))
    assert near(alone, vectors[1]) > 0.9999 and all(abs(near(v, v) - 1) < 1e-4 for v in vectors)
    assert near(vectors[0], vectors[1]) > near(vectors[0], vectors[2]), [near(vectors[0], v) for v in vectors]


def sense_openai(address):
    import openai
    client = openai.OpenAI(base_url=address + "/v1", api_key=KEY, max_retries=0)
    for part in (openai_texts, openai_forms, openai_reasoning, openai_stored, openai_embeddings):
        part(openai, client)


def sense_anthropic(address):
    import anthropic
    client = anthropic.Anthropic(base_url=address, api_key=KEY, max_retries=0)
    # The library's methods have no temperature.
    ask = {"model": "served", "max_tokens": 24, "messages": ASKED, "extra_body": {"temperature": 0}}
    said = client.messages.create(**ask)
    assert "Paris" in said.content[0].text and said.stop_reason == "end_turn", said
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == said.content[0].text
    thought = client.messages.create(**{**ask, "max_tokens": 1100}, thinking={"type": "enabled", "budget_tokens": 1024}, stop_sequences=["."])
    assert thought.content[0].type == "thinking" and thought.content[0].thinking, thought
    with client.messages.stream(**{**ask, "max_tokens": 1100}, thinking={"type": "enabled", "budget_tokens": 1024}, stop_sequences=["."]) as stream:
        deltas = [event.thinking for event in stream if event.type == "thinking"]
    assert "".join(deltas) == thought.content[0].thinking
    prefilled = client.messages.create(**{**ask, "messages": ASKED + [{"role": "assistant", "content": "The capital of France is"}]})
    assert "Paris" in prefilled.content[0].text, prefilled
    from typing import Literal

    from pydantic import BaseModel

    class Country(BaseModel):  # without bounds, which this library leaves out of the schema
        country: Literal["France", "Korea", "Peru"]
        is_large: bool

    parsed = client.messages.parse(**{**ask, "max_tokens": 120, "messages": [{"role": "user", "content": COUNTRY}]}, output_format=Country)
    assert isinstance(parsed.parsed_output, Country), parsed
    stopped = client.messages.create(**ask, stop_sequences=["Par"])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "Par", stopped

    async def count():
        async with anthropic.AsyncAnthropic(base_url=address, api_key=KEY) as other:
            return (await other.messages.create(**ask)).content[0].text

    assert asyncio.run(count()) == said.content[0].text


def sense_ollama(address):
    import ollama
    client = ollama.Client(host=address, headers={"Authorization": "Bearer " + KEY})
    options = {"temperature": 0, "num_predict": 24}
    assert {"completion", "tools", "thinking"} <= set(client.show("served").capabilities), client.show("served").capabilities
    said = client.chat("served", messages=ASKED, options=options)
    assert "Paris" in said.message.content and said.done_reason == "stop", said
    assert "Paris" in client.generate("served", prompt=QUESTION, options=options).response
    thought = client.chat("served", messages=ASKED, options=options, think=True).message
    assert thought.thinking and not thought.content, thought
    pieces = client.chat("served", messages=ASKED, options=options, think=True, stream=True)
    assert "".join(p.message.thinking or "" for p in pieces) == thought.thinking
    World = world_class()
    formed = client.chat("served", messages=[{"role": "user", "content": COUNTRY}], format=World.model_json_schema(), options={"temperature": 0, "num_predict": 96})
    is_world(json.loads(formed.message.content))

    def weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        return "rain in " + city

    told = client.chat("served", messages=[{"role": "user", "content": "What is the weather in Paris?"}], tools=[weather], options=options).message
    for call in told.tool_calls or []:
        assert call.function.name == "weather" and weather(**call.function.arguments).startswith("rain in "), call

    async def several():
        other = ollama.AsyncClient(host=address, headers={"Authorization": "Bearer " + KEY})
        return [a.message.content for a in await asyncio.gather(*(other.chat("served", messages=ASKED, options=options) for _ in range(3)))]

    assert set(asyncio.run(several())) == {said.message.content}


def sense_litellm(address):
    import litellm
    ways = {"openai/served": address + "/v1", "ollama_chat/served": address, "anthropic/served": address}
    for model, base in ways.items():
        ask = dict(model=model, api_base=base, api_key=KEY, messages=ASKED, max_tokens=24, temperature=0)
        assert "Paris" in litellm.completion(**ask).choices[0].message.content, model
        assert "Paris" in "".join(p.choices[0].delta.content or "" for p in litellm.completion(**ask, stream=True)), model
    ask = dict(model="openai/served", api_base=address + "/v1", api_key=KEY)
    thought = litellm.completion(**ask, messages=ASKED, max_tokens=12, temperature=0, extra_body={"enable_thinking": True}).choices[0].message
    assert thought.reasoning_content, thought
    called = litellm.completion(**ask, messages=ASKED, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=60).choices[0].message.tool_calls[0]
    assert set(json.loads(called.function.arguments)) == {"city"}, called
    formed = litellm.completion(**ask, messages=[{"role": "user", "content": COUNTRY}], response_format={"type": "json_schema", "json_schema": {"name": "w", "schema": WORLD, "strict": True}}, max_tokens=96)
    is_world(json.loads(formed.choices[0].message.content))
    assert len(litellm.embedding(**ask, input=["one", "two"], encoding_format="float").data) == 2
    assert "Paris" in litellm.text_completion(**ask, prompt="The capital of France is", max_tokens=12, temperature=0).choices[0].text
    assert "Paris" in litellm.responses(**ask, input=QUESTION, max_output_tokens=24, temperature=0).output[0].content[0].text


def sense_langchain(address):
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    chat = ChatOpenAI(base_url=address + "/v1", api_key=KEY, model="served", max_tokens=120, temperature=0, max_retries=0)
    assert "Paris" in chat.invoke(QUESTION).content
    for method in ("json_schema", "function_calling"):
        is_world(chat.with_structured_output(world_class(), method=method).invoke(COUNTRY).model_dump())
    pieces = list(chat.bind_tools([WEATHER], tool_choice="weather").stream("What is the weather in Paris?"))
    joined = pieces[0]
    for piece in pieces[1:]:
        joined += piece
    assert joined.tool_calls[0]["name"] == "weather" and set(joined.tool_calls[0]["args"]) == {"city"}, joined
    responses = ChatOpenAI(base_url=address + "/v1", api_key=KEY, model="served", max_tokens=24, temperature=0, use_responses_api=True)
    assert "Paris" in str(responses.invoke(QUESTION).content)
    assert [r.content for r in chat.batch([QUESTION] * 3)] == [chat.invoke(QUESTION).content] * 3
    embeddings = OpenAIEmbeddings(base_url=address + "/v1", api_key=KEY, model="served", check_embedding_ctx_length=False)
    assert len(embeddings.embed_query("one")) == len(embeddings.embed_documents(["two"])[0])


def sense_langchain_ollama(address):
    from langchain_ollama import ChatOllama
    more = {"client_kwargs": {"headers": {"Authorization": "Bearer " + KEY}}, "base_url": address, "model": "served", "temperature": 0, "num_predict": 96}
    assert "Paris" in ChatOllama(**more).invoke(QUESTION).content
    is_world(ChatOllama(**more).with_structured_output(world_class(), method="json_schema").invoke(COUNTRY).model_dump())
    assert ChatOllama(**{**more, "num_predict": 12}, reasoning=True).invoke(QUESTION).additional_kwargs["reasoning_content"]


def sense_cohere(address):
    """A model that was not trained for it gives some order, the same each time."""
    import cohere
    client = cohere.ClientV2(api_key=KEY, base_url=address)
    documents = ["Paris is the capital of France.", "Bananas are yellow.", "Lima is in Peru."]
    first, second = (client.rerank(model="served", query="capital of France", documents=documents).results for _ in range(2))
    assert sorted(r.index for r in first) == [0, 1, 2] and [(r.index, r.relevance_score) for r in first] == [(r.index, r.relevance_score) for r in second]


def sense_llama_index(address):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike
    model = OpenAILike(model="served", api_base=address + "/v1", api_key=KEY, is_chat_model=True, is_function_calling_model=True, max_tokens=96, temperature=0)
    asked = [ChatMessage(role="user", content=QUESTION)]
    said = model.chat(asked).message.content
    assert "Paris" in said and [piece.message.content for piece in model.stream_chat(asked)][-1] == said
    text = OpenAILike(model="served", api_base=address + "/v1", api_key=KEY, is_chat_model=False, max_tokens=12, temperature=0)
    assert "Paris" in text.complete("The capital of France is").text


SENSE = {"openai": sense_openai, "anthropic": sense_anthropic, "ollama": sense_ollama, "litellm": sense_litellm, "cohere": sense_cohere, "langchain-openai": sense_langchain,
         "langchain-ollama": sense_langchain_ollama, "llama-index-llms-openai-like": sense_llama_index}


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    model = models_check.model_file("smollm2-135m")
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its own copy of a table, instead of one from the network
    with tempfile.TemporaryDirectory(prefix="lumen-clients-") as folder:
        work = Path(folder)
        calls = work / "calls.jinja"
        calls.write_text(serve_check.TEMPLATE)

        def served(template, *flags):
            return serve_check.Served(lumen, work, "-m", f"served={model}", "--ctx-size", 16384, "--parallel", 8, "--batch-invariant", "--chat-template", template, *flags)

        def recorded(s):
            answered, _ = clients_check.check(s, is_tolerant=True)
            return f"{answered} requests as programs send them are answered"

        def libraries(checks):
            def told(s):
                versions = try_libraries({name: (LIBRARIES[name][0], check) for name, check in checks.items()}, f"http://127.0.0.1:{s.port}")
                return f"what these ask is answered: {', '.join(versions) or 'none is installed'}"
            return told

        parts = [(recorded, served(TEMPLATE, "--seconds", 2)), (libraries({name: check for name, (_, check) in LIBRARIES.items()}), served(calls, "--api-key", KEY)),
                 (libraries(SENSE), served(TEMPLATE, "--api-key", KEY))]
        try:
            for check, s in parts:
                print("smollm2-135m:", check(s), flush=True)
                assert s.end() == 143
        finally:
            for _, s in parts:
                s.process.kill()


if __name__ == "__main__":
    main()
