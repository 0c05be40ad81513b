#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include <malloc.h>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/interceptor.hpp>

#include "conformance/slow_build.hpp"
#include "inject/limits.hpp"
#include "inject/protocol/procedures.hpp"
#include "inject/source/injector_testing.hpp"
#include "inject/target/waiting_messages.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam {
namespace {

TEST_F(injector_test, a_call_runs_code_that_the_target_never_saw) {
    const injection_target target(at_target, open_to_all());
    const injected_function function = inject.add(adder());
    const injection message = function.create(as_bytes_of(ones));
    EXPECT_EQ(message.payload().size(), 6u);
    EXPECT_EQ(text_of(message.call(there)), "6");
    EXPECT_EQ(text_of(message.call(there)), "12");
    EXPECT_EQ(text_of(message.start(there).get()), "18");
    EXPECT_EQ(target.images(), 1u);
    EXPECT_EQ(linked(), 1u);
}

TEST_F(injector_test, an_engine_has_one) {
    engine on("shm://");
    const injector first(on);
    std::string why;
    try {
        const injector second(on);
    } catch (const error& wrong) {
        why = wrong.what();
    }
    EXPECT_TRUE(why.starts_with("this engine already has an injector, expected at most one"))
        << why;
}

TEST_F(injector_test, a_post_brings_its_code_along_when_it_is_missing) {
    for (const handler run : {handler::ult, handler::inline_}) {
        sum = 0;
        const injection_target target(at_target, open_to_all({.run = run}));
        const injected_function function = inject.add(adder());
        const injection message = function.create(as_bytes_of(ones));
        for (int i = 0; i < 10; ++i)
            message.post(there);
        wait_for_sum(60);
        EXPECT_EQ(target.images(), 1u);
    }
}

TEST_F(injector_test, messages_come_whole_in_either_encoding) {
    const injected_function function =
        inject.add(compiled("same", "MAIN(same) { amalgam_inject_result(payload, size); }"));
    engine in_xdr("shm://", {.encoding = encoding::xdr, .checksum = true});
    injector of_xdr(in_xdr);
    const injected_function same = of_xdr.add(function.image());
    const injected_function adds = of_xdr.add(adder());
    const peer target_there = in_xdr.lookup(at_target.address());
    for (const handler run : {handler::ult, handler::inline_}) {
        sum = 0;
        const injection_target target(at_target, open_to_all({.run = run}));
        for (const shipping how : {shipping::once, shipping::always}) {
            for (const std::size_t bytes : {0, 1, 5, 8, 300, 70001}) {
                const std::vector<std::byte> content(bytes, std::byte{7});
                injection message = same.create(bytes, how);
                std::copy(content.begin(), content.end(), message.payload().data());
                EXPECT_EQ(message.call(target_there), content);
            }
            adds.create(as_bytes_of(ones), how).post(target_there);
        }
        wait_for_sum(12);
    }
}

TEST_F(injector_test, what_many_messages_wait_for_is_fetched_once) {
    std::atomic<int> fetches{0};
    struct counts : interceptor {
        explicit counts(std::atomic<int>& into) : count(into) {}
        bool sees_library_procedures() const noexcept override { return true; }
        void serving(call_context& call) override {
            count += call.procedure() == "amalgam.inject.fetch";
        }
        std::atomic<int>& count;
    };
    engine source("shm://", {.interceptors = {std::make_shared<counts>(fetches)}});
    injector of_source(source);
    const injection counted = of_source.add(adder()).create(as_bytes_of(ones));
    const peer target_there = source.lookup(at_target.address());
    const injection_target target(at_target, open_to_all());
    source.run([&] {
        for (int i = 0; i < 500; ++i)
            counted.post(target_there);
    });
    wait_for_sum(3000);
    EXPECT_EQ(fetches, 1);
}

TEST_F(injector_test, code_in_every_message_is_linked_once_as_long_as_it_is_the_same) {
    const injection_target target(at_target, open_to_all());
    const injected_function function = inject.add(adder());
    const injection message = function.create(as_bytes_of(ones), shipping::always);
    EXPECT_EQ(text_of(message.call(there)), "6");
    EXPECT_EQ(text_of(message.call(there)), "12");
    message.post(there);
    wait_for_sum(18);
    EXPECT_EQ(linked(), 1u);
}

TEST_F(injector_test, a_payload_may_become_shorter_than_it_might) {
    const injection_target target(at_target, open_to_all());
    const injected_function function = inject.add(compiled("shorter", R"(
extern "C" std::size_t shorter_payload_get_max_size(void*, std::size_t) { return 1000; }
extern "C" int shorter_payload_init(void* payload, std::size_t most, void*, std::size_t) {
    std::memset(payload, 'x', most);
    return amalgam_inject_payload_size(most + 1) == -1 && amalgam_inject_payload_size(7) == 0 ? 0 : 1;
}
MAIN(shorter) { amalgam_inject_result(payload, size); }
)"));
    EXPECT_EQ(text_of(function.create(const_bytes()).call(there)), "xxxxxxx");
}

TEST_F(injector_test, a_cpp_function_travels_with_its_arguments_and_result) {
    std::map<std::string, int> counts{{"apple", 3}};
    injection_options options = open_to_all();
    options.target_args = &counts;
    const injection_target target(at_target, options);
    const code_image image = compiled_cpp("count", R"(
#include <map>
std::string count(std::map<std::string, int>& where, const std::string& word, std::vector<int> more) {
    for (int each : more) where[word] += each;
    if (word.empty()) throw std::runtime_error("there is no word");
    return word + " " + std::to_string(where[word]);
}
)");
    const auto count = inject.add<std::string(std::string, std::vector<int>)>(image);
    EXPECT_EQ(count.call(there, "apple", {1, 2}), "apple 6");
    EXPECT_EQ(count.within(1min).call(there, "pear", {}), "pear 0");
    EXPECT_EQ(error_of([&] { (void)count.within(0ns).call(there, "pear", {}); }).code(),
              errc::timed_out);
    EXPECT_STREQ(error_of([&] { (void)count.call(there, "", {}); }).what(), "there is no word");
    EXPECT_EQ(count.start(there, "apple", {4}).get(), "apple 10");
    EXPECT_STREQ(error_of([&] { (void)count.start(there, "", {}).get(); }).what(),
                 "there is no word");
    const injection wrong = inject.add(image).create(4);
    EXPECT_STREQ(error_of([&] { (void)wrong.call(there); }).what(),
                 "its arguments do not match its signature");
}

TEST_F(injector_test, a_function_is_added_by_its_own_signature_only) {
    const injection_target target(at_target, open_to_all());
    const code_image image = compiled_cpp(
        "twice",
        "std::uint64_t twice(long&, std::uint64_t n, const amalgam::attached_bulk&) {\n"
        "    return 2 * n; }\n");
    const error why = error_of([&] { (void)inject.add<std::uint64_t(std::int64_t, bulk)>(image); });
    EXPECT_EQ(why.code(), errc::mismatch);
    EXPECT_STREQ(why.what(),
                 "the image twice has the signature u64(u64,bulk), but is added as u64(i64,bulk)");
    EXPECT_EQ(error_of([&] { (void)inject.add<std::int64_t(std::uint64_t, bulk)>(image); }).code(),
              errc::mismatch);
    EXPECT_EQ(error_of([&] { (void)inject.add<std::uint64_t(std::uint64_t)>(image); }).code(),
              errc::mismatch);
    const std::vector<int> nothing(1);
    const exposed none = expose(at_source, nothing);
    const auto twice = inject.add<std::uint64_t(std::uint64_t, bulk)>(image);
    EXPECT_EQ(twice.start(there, 21, none).get(), 42u);
}

TEST_F(injector_test, a_started_function_without_a_result_is_waited_for) {
    const injection_target target(at_target, open_to_all());
    const auto adds =
        inject.add<void(int)>(compiled_cpp("adds", "void adds(long& sum, int n) { sum += n; }\n"));
    adds.start(there, 7).get();
    EXPECT_EQ(sum_now(), 7);
}

TEST_F(injector_test, new_code_of_the_same_name_runs_beside_the_old) {
    const injection_target target(at_target, open_to_all());
    const auto answers = [](const char* what) {
        return compiled("versioned", std::string("MAIN(versioned) { amalgam_inject_result(\"") +
                                         what + "\", 3); }");
    };
    const injected_function old = inject.add(answers("old")), fresh = inject.add(answers("new"));
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(text_of(old.create(1).call(there)), "old");
        EXPECT_EQ(text_of(fresh.create(1).call(there)), "new");
    }
    EXPECT_EQ(target.images(), 2u);
}

TEST_F(injector_test, what_it_throws_is_told_and_harms_nobody) {
    const injection_target target(at_target, open_to_all());
    const injected_function bad =
        inject.add(compiled("bad", "MAIN(bad) { throw std::runtime_error(\"out of luck\"); }"));
    const error why = error_of([&] { (void)bad.create(1).call(there); });
    EXPECT_EQ(why.code(), errc::handler_failed);
    EXPECT_STREQ(why.what(), "out of luck");
    bad.create(1).post(there);
    const injected_function long_winded = inject.add(
        compiled("long", "MAIN(long) { throw std::runtime_error(std::string(10000000, 'x')); }"));
    const error cut = error_of([&] { (void)long_winded.create(1).call(there); });
    EXPECT_EQ(cut.what(), std::string(1024, 'x'));
    EXPECT_EQ(text_of(inject.add(adder()).create(as_bytes_of(ones)).call(there)), "6");
}

TEST_F(injector_test, what_its_static_objects_throw_is_told_and_harms_nobody) {
    const injection_target target(at_target, open_to_all());
    for (const char* what : {"std::runtime_error(\"no\")", "7"}) {
        const injected_function bad = inject.add(
            compiled("bad", std::string("static int fails() { throw ") + what +
                                "; }\nstatic int never = fails();\nMAIN(bad) { ++never; }"));
        const injection message = bad.create(1);
        message.post(there);
        const error why = error_of([&] { (void)message.call(there); });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_NE(std::string(why.what()).find("a static object of the image bad failed"),
                  std::string::npos);
    }
    EXPECT_EQ(text_of(inject.add(adder()).create(as_bytes_of(ones)).call(there)), "6");
}

TEST_F(injector_test, payloads_of_any_size_lie_where_the_image_wants_them) {
    const code_image image = compiled("aligned", R"(
MAIN(aligned) {
    const bool right = reinterpret_cast<unsigned long>(payload) % 4096 == 0;
    std::size_t zeros = 0;
    for (std::size_t i = 0; i < size; ++i) zeros += static_cast<char*>(payload)[i] == 0;
    const std::string text = (right ? "aligned " : "not aligned ") + std::to_string(zeros);
    amalgam_inject_result(text.data(), text.size());
}
)",
                                      4096);
    for (const handler run : {handler::ult, handler::inline_}) {
        const injection_target target(at_target, open_to_all({.run = run}));
        const injected_function function = inject.add(image);
        for (const std::size_t bytes : {0, 1, 100, 5000, 100000, 3000000})
            for (const shipping how : {shipping::once, shipping::always})
                EXPECT_EQ(text_of(function.create(bytes, how).call(there)),
                          "aligned " + std::to_string(bytes));
    }
}

TEST_F(injector_test, what_was_not_used_for_longest_goes_first) {
    const injection_target target(at_target, open_to_all({.max_images = 2}));
    std::vector<injected_function> all;
    for (const char* each : {"one", "two", "three"})
        all.push_back(
            inject.add(compiled(each, std::string("MAIN(") + each + ") { amalgam_inject_result(\"" +
                                          each + "\", 3); }")));
    for (const int which : {0, 1, 0, 2, 0, 1, 2})
        EXPECT_GE(text_of(all[static_cast<std::size_t>(which)].create(1).call(there)).size(), 3u);
    EXPECT_EQ(target.images(), 2u);
    EXPECT_EQ(linked(), 5u) << "the first was used again, and stayed";
}

TEST_F(injector_test, code_goes_onward_and_its_results_come_back) {
    const code_image image = compiled("hops", R"(
extern "C" long amalgam_inject_onward(const char*, const void*, std::size_t, void*, std::size_t);
extern "C" const char* next_for_test(void* target);
MAIN(hops) {
    char text[64];
    long bytes = 0;
    if (const char* next = next_for_test(target)) bytes = amalgam_inject_onward(next, payload, size, text, 60);
    const std::string all = bytes < 0 ? "lost" : std::string(text, bytes) + "+";
    amalgam_inject_result(all.data(), all.size());
}
)");
    injection_options options = open_to_all();
    options.exports["next_for_test"] =
        reinterpret_cast<void*>(+[](void* target) { return static_cast<const char*>(target); });
    engine second("shm://"), third("shm://");
    std::string to_second = second.address(), to_third = third.address();
    const auto at = [&](engine& where, std::string* next) {
        options.target_args = next == nullptr ? nullptr : next->data();
        return std::make_unique<injection_target>(where, options);
    };
    const auto first_target = at(at_target, &to_second), second_target = at(second, &to_third);
    auto third_target = at(third, nullptr);
    const injected_function hops = inject.add(image);
    EXPECT_EQ(text_of(hops.create(1).call(there)), "+++");
    EXPECT_EQ(text_of(hops.create(1).call(there)), "+++");
    EXPECT_EQ(third_target->images(), 1u);
    third_target.reset();
    EXPECT_EQ(text_of(hops.create(1).call(there)), "lost+") << "the second says so";
}

// ---- requests by code

TEST_F(injector_test, code_calls_procedures_of_others_and_of_who_sent_it) {
    const injection_target target(at_target, open_to_all());
    engine third("shm://");
    third.define("price", [](const std::string& of, int pieces) {
        if (of.empty()) throw std::invalid_argument("price of what?");
        return std::vector<double>{1.5 * pieces, static_cast<double>(of.size())};
    });
    at_source.define("double", [](const_bytes all) {
        std::vector<std::byte> twice(all.begin(), all.end());
        twice.insert(twice.end(), all.begin(), all.end());
        return twice;
    });
    const auto shop = inject.add<std::string(std::string, std::string)>(compiled_cpp("shop", R"(
std::string shop(long&, const std::string& where, const std::string& what) {
    const amalgam::injected_call<std::vector<double>(std::string, int)> price("price", where);
    const std::vector<double> got = price(what, 4);
    char text[40];
    const long bytes = amalgam_inject_call(nullptr, "double", what.data(), what.size(), text, 40);
    const long none = amalgam_inject_call("nowhere", "double", text, 0, text, 40);
    return std::to_string(static_cast<int>(got.at(0) + got.at(1))) + std::string(text, bytes) + std::to_string(none);
}
)"));
    EXPECT_EQ(shop.call(there, third.address(), "tea"), "9teatea-1");
    EXPECT_NE(std::string(error_of([&] { (void)shop.call(there, third.address(), ""); }).what())
                  .find("price of what?"),
              std::string::npos);
    EXPECT_EQ(error_of([&] { (void)shop.call(there, "nowhere", ""); }).code(),
              errc::handler_failed);
}

TEST_F(injector_test, code_pulls_from_and_pushes_to_memory_that_is_attached) {
    const code_image image = compiled_cpp("scale", R"(
std::uint64_t scale(long& calls, const amalgam::attached_bulk& from, int by, const amalgam::attached_bulk& to) {
    std::vector<int> all = from.pull_all<int>();
    for (int& each : all) each *= by;
    to.push(0, std::as_bytes(std::span(all)));
    ++calls;
    return to.bytes();
}
)");
    const auto scale = inject.add<std::uint64_t(bulk, int, bulk)>(image);
    std::vector<int> numbers(100000, 7), results(100000);
    const exposed to = expose(at_source, results, access::read_write);
    const exposed from = expose(at_source, std::as_const(numbers));
    {
        const injection_target target(at_target, open_to_all());
        EXPECT_EQ(scale.call(there, from, 3, to), 400000u);
        EXPECT_EQ(results, std::vector<int>(100000, 21));
        const error why = error_of([&] { (void)scale.call(there, from, 3, from); });
        EXPECT_EQ(why.code(), errc::handler_failed) << "it may only be read";
    }
    // The image must be fetched first; only the message keeps the memory.
    const injection_target target(at_target, open_to_all());
    scale.post(there, expose_owned(at_source, std::vector<int>(100000, 5)), 2, to);
    wait_for_sum(2);
    EXPECT_EQ(results, std::vector<int>(100000, 10));
    const auto always = inject.add<std::uint64_t(bulk, int, bulk)>(image, shipping::always);
    EXPECT_EQ(always.call(there, from, 4, to), 400000u);
    EXPECT_EQ(results.back(), 28);
    injection lacks = inject.add(image).create(12);  // Expects two memories, but gets one.
    lacks.attach(from);
    lacks.payload()[8] = std::byte{1};
    EXPECT_STREQ(error_of([&] { (void)lacks.call(there); }).what(),
                 "the message came with no memory of that number");
}

TEST_F(injector_test, a_million_injections_leave_nothing_behind) {
    // Sanitizers count leaks themselves.
    const std::size_t messages = conformance::slow_build ? 20'000 : 1'000'000;
    const injected_function function = inject.add(adder());
    const injection small = function.create(1), large = function.create(5000);
    const auto inject_so_many = [&](std::size_t count, int targets) {
        for (int i = 0; i < targets; ++i) {  // Each links the image again, and unloads it.
            const injection_target target(at_target, open_to_all({.run = handler::inline_}));
            const std::size_t each = count / static_cast<std::size_t>(targets);
            at_source.run([&] {
                (void)small.call(there);  // Delivers the image: few messages may wait for one.
                for (std::size_t n = 1; n < each; ++n)
                    (n % 50 == 0 ? large : small).post(there);
            });
            poll_until([&] { return target.runs() >= each; });
            ASSERT_EQ(target.runs(), each);
            ASSERT_EQ(target.images(), 1u);
        }
    };
    const auto memory = [] {
        const auto heap = ::mallinfo2();
        std::ifstream maps("/proc/self/maps");
        const auto ranges = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
        return std::pair(heap.uordblks + heap.hblkhd, ranges);
    };
    inject_so_many(messages / 5, 40);
    const auto [bytes, ranges] = memory();
    inject_so_many(messages, 200);
    const auto [bytes_after, ranges_after] = memory();
    EXPECT_EQ(linked(), 240u);
    if (detail::sanitized) return;
    EXPECT_LT(bytes_after, bytes + (256 << 10));
    EXPECT_LT(ranges_after, ranges + 100) << "of 200 that were mapped and unmapped";
}

// ---- permissions

TEST_F(injector_test, where_nobody_has_turned_it_on_nothing_runs) {
    const injected_function function = inject.add(adder());
    const error why = error_of([&] { (void)function.create(1).call(there); });
    EXPECT_EQ(why.code(), errc::not_found);
}

TEST_F(injector_test, only_what_a_trusted_signer_has_signed_runs) {
    const signing_key known = signing_key::generate(), stranger = signing_key::generate();
    injection_options options;
    options.target_args = &sum;
    options.allows.trusted = {known.signer()};
    const injection_target target(at_target, options);
    const auto run = [&](const code_image& image) {
        return text_of(inject.add(image).create(as_bytes_of(ones)).call(there));
    };
    EXPECT_EQ(run(adder().signed_by(known)), "6");
    const code_image other = compiled("other", "MAIN(other) {}");
    const auto refused = [&](const code_image& image) {
        const error why = error_of([&] { (void)inject.add(image).create(1).call(there); });
        EXPECT_EQ(why.code(), errc::denied);
        return std::string(why.what());
    };
    EXPECT_EQ(refused(adder()), "the image adder may not run here: it is not signed")
        << "though the same code is there, signed";
    EXPECT_EQ(refused(other), "the image other may not run here: it is not signed");
    EXPECT_EQ(refused(other.signed_by(stranger)),
              "the image other may not run here: its signer is not trusted here");
    const code_image right = other.signed_by(known);
    std::vector<std::byte> forged(right.bytes().begin(), right.bytes().end());
    forged.back() ^= std::byte{1};
    EXPECT_EQ(refused(*code_image::parse(forged)),
              "the image other may not run here: its signature is invalid");
    EXPECT_EQ(target.images(), 1u);
}

TEST_F(injector_test, who_has_the_code_of_a_signed_image_cannot_name_it) {
    const signing_key known = signing_key::generate();
    const code_image image = adder(), made = image.signed_by(known);
    EXPECT_EQ(made.hash(), image.hash());
    EXPECT_NE(detail::id_of(made), detail::id_of(image));
    EXPECT_NE(detail::id_of(made), detail::id_of(image.signed_by(signing_key::generate())));
    injection_options options;
    options.target_args = &sum;
    options.allows.trusted = {known.signer()};
    const injection_target target(at_target, options);
    EXPECT_EQ(text_of(inject.add(made).create(as_bytes_of(ones)).call(there)), "6");
    const auto run = at_source.procedure<detail::at_target::run>(detail::at_target::run_name);
    EXPECT_TRUE(run.on(there)(detail::id_of(image), {as_bytes_of(ones)}).wants_code);
    EXPECT_EQ(target.runs(), 1u);
}

TEST_F(injector_test, what_is_there_is_checked_again_when_who_decides_has_changed_his_mind) {
    std::atomic<bool> allowed{true};
    injection_options options = open_to_all();
    options.allows.check = [&](const code_image&) {
        if (!allowed) throw error(errc::denied, "not any more");
    };
    const injection_target target(at_target, options);
    const auto bring = at_source.procedure<detail::at_target::bring>(detail::at_target::bring_name);
    EXPECT_EQ(bring.on(there)(adder().bytes()).code, errc::ok);
    allowed = false;
    EXPECT_EQ(bring.on(there)(adder().bytes()).code, errc::denied);
}

TEST_F(injector_test, a_new_policy_is_for_what_is_there_too) {
    for (const handler run : {handler::ult, handler::inline_}) {
        injection_target target(at_target, open_to_all({.run = run}));
        const injected_function function = inject.add(adder());
        for (const shipping how : {shipping::once, shipping::always}) {
            target.set_policy({.unsigned_too = true});
            const injection message = function.create(as_bytes_of(ones), how);
            (void)message.call(there);
            message.post(there);  // Inline handlers take another path.
            poll_until([&] { return target.runs() % 2 == 0; });
            const std::uint64_t runs = target.runs();
            target.set_policy({});
            EXPECT_EQ(target.images(), 0u);
            const std::uint64_t before = at_target.counters().get("inject.refused").value();
            message.post(there);
            EXPECT_EQ(error_of([&] { (void)message.call(there); }).code(), errc::denied);
            poll_until(
                [&] { return at_target.counters().get("inject.refused").value() >= before + 2; });
            EXPECT_EQ(target.runs(), runs);
        }
    }
}

TEST_F(injector_test, names_and_imports_can_be_forbidden) {
    injection_options options = open_to_all();
    options.allows.names = {"adder", "wants"};
    options.allows.check = [](const code_image& image) {
        if (image.bytes().size() > 100000) throw error(errc::denied, "that is too much code");
    };
    const injection_target target(at_target, options);
    const auto refused = [&](const code_image& image) {
        return std::string(error_of([&] { (void)inject.add(image).create(1).call(there); }).what());
    };
    EXPECT_EQ(refused(compiled("other", "MAIN(other) {}")),
              "the image other may not run here: its name is not among those that may run here");
    EXPECT_EQ(refused(compiled("wants",
                               "#include <cstdlib>\nMAIN(wants) { (void)!std::system(\"ls\"); }")),
              "the image wants may not run here: it imports system, which is denied here");
    EXPECT_EQ(refused(compiled("wants",
                               "static const char much[200000] = {1};\n"
                               "MAIN(wants) { amalgam_inject_result(much, size); }")),
              "that is too much code");
}

// ---- abuse by strangers

TEST_F(injector_test, messages_to_images_that_nobody_has_are_held_to_a_bound) {
    for (const handler run : {handler::ult, handler::inline_}) {
        const injection_target target(at_target, open_to_all({.run = run}));
        engine stranger("shm://", {.name = "stranger"});
        std::atomic<bool> go{false};
        stranger.define(detail::library_name{detail::at_source::fetch_name}, [&](detail::image_id) {
            while (!go)
                this_task::sleep_for(1ms);
            return std::vector<std::byte>();
        });
        const auto post = stranger.procedure<detail::at_target::post>(detail::at_target::post_name);
        const peer victim = stranger.lookup(at_target.address());
        const std::vector<std::byte> payload(1000);
        const std::uint64_t before = at_target.counters().get("inject.refused").value();
        constexpr std::uint64_t messages = 1000;
        stranger.run([&] {
            for (std::uint64_t i = 1; i <= messages; ++i)
                post.on(victim).post(i, {payload});
        });
        const auto refused = [&] {
            return at_target.counters().get("inject.refused").value() - before;
        };
        constexpr std::uint64_t held = detail::limits::max_fetched_images_per_peer;
        poll_until([&] { return refused() >= messages - held; });
        EXPECT_EQ(refused(), messages - held);
        sum = 0;
        const injected_function good = inject.add(adder());
        good.create(as_bytes_of(ones)).post(there);
        wait_for_sum(6);
        go = true;
        poll_until([&] { return refused() >= messages; });
        EXPECT_EQ(refused(), messages);
    }
}

TEST(waiting_messages, are_bounded_by_number_and_bytes_and_by_half_for_each_peer) {
    engine one("shm://"), other("shm://");
    const peer a = one.lookup(other.address()), b = one.lookup(one.address());
    const auto waiting = std::make_shared<detail::waiting_messages>(8, 1000);
    std::vector<detail::waiting_messages::place> all;
    const auto enters = [&](const peer& from, detail::image_id which, std::size_t bytes) {
        try {
            all.push_back(waiting->enter(from, which, bytes));
            return true;
        } catch (const error& why) {
            EXPECT_EQ(why.code(), errc::overloaded);
            return false;
        }
    };
    for (int i = 0; i < 4; ++i)
        EXPECT_TRUE(enters(a, 1, 1));
    EXPECT_FALSE(enters(a, 1, 1)) << "half of the messages";
    EXPECT_FALSE(enters(b, 1, 1) && enters(b, 1, 500)) << "half of the bytes";
    all.clear();
    EXPECT_TRUE(enters(a, 1, 100000)) << "one of any size";
    EXPECT_FALSE(enters(b, 1, 1) && enters(b, 1, 1)) << "all bytes";
    all.clear();
    for (detail::image_id i = 0; i < detail::limits::max_fetched_images_per_peer; ++i)
        (void)waiting->enter(a, i, 0);  // A finished wait leaves nothing behind.
    for (int i = 0; i < 4; ++i)
        EXPECT_TRUE(enters(b, 7, 1));
}

TEST_F(injector_test, a_source_that_gives_another_image_than_was_asked_for_is_refused) {
    const injection_target target(at_target, open_to_all());
    engine liar("shm://");
    liar.define(detail::library_name{detail::at_source::fetch_name}, [](detail::image_id) {
        return std::vector<std::byte>(adder().bytes().begin(), adder().bytes().end());
    });
    liar.procedure<detail::at_target::post>(detail::at_target::post_name)
        .on(liar.lookup(at_target.address()))
        .post(detail::id_of(adder()) + 1, {as_bytes_of(ones)});
    poll_until([&] { return at_target.counters().get("inject.refused").value() != 0; });
    EXPECT_EQ(at_target.counters().get("inject.refused").value(), 1u);
    EXPECT_EQ(target.images(), 0u) << "it is not kept either";
    EXPECT_EQ(target.runs(), 0u);
}

TEST_F(injector_test, a_target_that_always_forgets_is_asked_a_few_times_only) {
    std::atomic<int> asked{0};
    at_target.define(detail::library_name{detail::at_target::run_name},
                     [&](detail::image_id, detail::rest_of_message) {
                         ++asked;
                         return detail::run_answer{errc::not_found, true, {}, {}};
                     });
    at_target.define(detail::library_name{detail::at_target::bring_name},
                     [&](const_bytes) { return detail::run_answer(); });
    EXPECT_EQ(
        error_of([&] { (void)inject.add(adder()).create(as_bytes_of(ones)).call(there); }).code(),
        errc::overloaded);
    EXPECT_EQ(asked, 4);
}

TEST_F(injector_test, inline_handlers_do_not_run_what_the_target_has_forgotten) {
    const injection_target target(at_target,
                                  open_to_all({.run = handler::inline_, .max_images = 1}));
    const injection message = inject.add(adder()).create(as_bytes_of(ones));
    message.post(there);
    wait_for_sum(6);
    EXPECT_EQ(linked(), 1u);
    (void)inject.add(compiled("other", "MAIN(other) {}")).create(1).call(there);
    message.post(there);
    wait_for_sum(12);
    EXPECT_EQ(linked(), 3u);
}

// ---- failure

TEST_F(injector_test, a_message_that_cannot_be_made_says_why) {
    const injected_function function = inject.add(adder());
    EXPECT_EQ(error_of([&] { (void)function.create(const_bytes()); }).code(), errc::handler_failed);
    const injected_function plain = inject.add(compiled("plain", "MAIN(plain) {}"));
    EXPECT_EQ(error_of([&] { (void)plain.create(as_bytes_of(ones)); }).code(), errc::not_found);
}

TEST_F(injector_test, deadlines_and_cancels_are_those_of_calls) {
    injection_options options = open_to_all();
    static std::atomic<bool> go, waits;
    go = waits = false;
    options.exports["wait_for_test"] = reinterpret_cast<void*>(+[](bool tells) {
        if (tells) waits = true;
        while (!go.load())
            this_task::sleep_for(1ms);
    });
    const injection_target target(at_target, options);
    const injected_function slow =
        inject.add(compiled("slow",
                            "extern \"C\" void wait_for_test(bool);\n"
                            "MAIN(slow) { wait_for_test(*static_cast<bool*>(payload)); }"));
    EXPECT_EQ(error_of([&] { (void)slow.create(1).call(there, 50ms); }).code(), errc::timed_out);
    auto late = slow.create(1).start(there, 50ms);
    EXPECT_EQ(error_of([&] { (void)late.get(); }).code(), errc::timed_out);
    injection tells = slow.create(1);
    tells.payload()[0] = std::byte{1};
    auto canceled = tells.start(there);
    poll_until([&] { return waits.load(); });
    canceled.cancel();
    EXPECT_EQ(error_of([&] { (void)canceled.get(); }).code(), errc::canceled);
    { const auto dropped = slow.create(1).start(there); }
    poll_until([&] { return running() == 0; });
    EXPECT_EQ(running(), 0u) << "there, too";
    go = true;
    (void)slow.create(1).call(there);
}

TEST_F(injector_test, an_image_goes_when_the_last_thread_that_it_started_has_ended) {
    injection_options options = open_to_all({.max_images = 1});
    static std::atomic<bool> go, gone;
    static std::atomic<int> ran;
    go = gone = false;
    ran = 0;
    options.exports["wait_for_test"] = reinterpret_cast<void*>(+[] {
        while (!go.load())
            std::this_thread::sleep_for(1ms);
        ++ran;
    });
    options.exports["gone_for_test"] = reinterpret_cast<void*>(+[] { gone = true; });
    const injection_target target(at_target, options);
    (void)inject
        .add(compiled("starts", R"(
#include <pthread.h>
#include <thread>
extern "C" void wait_for_test();
extern "C" void gone_for_test();
struct tells { ~tells() { gone_for_test(); } };
static tells last;
static void* waits(void* text) { wait_for_test(); return text; }
MAIN(starts) {
    std::thread([what = std::string(100, 'x')] { wait_for_test(); }).detach();
    pthread_t other;
    if (pthread_create(&other, nullptr, waits, nullptr) == 0) pthread_detach(other);
}
)"))
        .create(1)
        .call(there);
    (void)inject.add(adder()).create(as_bytes_of(ones)).call(there);  // Replaces it.
    EXPECT_FALSE(gone);
    go = true;
    poll_until([&] { return gone.load(); });
    EXPECT_TRUE(gone);
    EXPECT_EQ(ran, 2);
}

TEST_F(injector_test, an_image_goes_when_its_last_call_has_ended) {
    injection_options options = open_to_all({.max_images = 1});
    static std::atomic<bool> go{false};
    go = false;
    options.exports["wait_for_test"] = reinterpret_cast<void*>(+[] {
        while (!go.load())
            this_task::sleep_for(1ms);
    });
    const injection_target target(at_target, options);
    const injected_function slow = inject.add(
        compiled("slow",
                 "extern \"C\" void wait_for_test();\n"
                 "MAIN(slow) { wait_for_test(); amalgam_inject_result(\"still here\", 10); }"));
    auto later = slow.create(1).start(there);
    (void)inject.add(adder()).create(as_bytes_of(ones)).call(there);  // Replaces it.
    go = true;
    EXPECT_EQ(text_of(later.get()), "still here");
}

}  // namespace
}  // namespace amalgam
