#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/describe.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/provider.hpp>

#include "rpc/limits.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

TEST(describe, names_signatures_providers_and_sentences_are_read_here_and_from_a_peer) {
    loop_pair two;
    two.server.define("sum", [](int a, int b) { return a + b; }, {.about = "Adds two numbers."});
    two.server.define("put", [](const std::string&) {}, {.provider = 3});
    two.server.define("gone", [] {});
    two.server.undefine("gone");
    const std::vector<procedure_description> expected{
        {"sum", "i32(i32,i32)", 0, "Adds two numbers."}, {"put", "void(string)", 3, ""}};
    EXPECT_EQ(describe(two.server), expected);
    const peer there = two.there();
    EXPECT_EQ(two.in_client([&] { return describe(two.client, there); }), expected);
}

TEST(describe, any_number_of_procedures_comes_in_bounded_answers) {
    loop_pair two;
    const std::size_t number = 2 * detail::limits::max_described_at_once + 1;
    for (std::size_t i = 0; i < number; ++i)
        two.server.define("f" + std::to_string(i), [] {},
                          {.about = std::string(2 * detail::limits::max_about_bytes, 'x')});
    const peer there = two.there();
    const auto all = two.in_client([&] { return describe(two.client, there); });
    ASSERT_EQ(all.size(), number);
    EXPECT_EQ(all.back().name, "f" + std::to_string(number - 1));
    EXPECT_EQ(all.back().about.size(), detail::limits::max_about_bytes);
}

TEST(describe, is_denied_where_reflection_is_off) {
    loop_network net;
    engine server{net.port("server"), {.reflection = false}};
    engine client{net.port("client")};
    server.define("secret", [] {});
    const peer there = client.lookup(server.address());
    auto asked = client.spawn([&] { (void)describe(client, there); });
    net.run_until_idle();
    const error why = error_of([&] { asked.get(); });
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_NE(std::string(why.what()).find("engine_options::reflection"), std::string::npos);
    EXPECT_EQ(describe(server).size(), 1u);
}

TEST(describe, what_was_called_through_define_any_is_not_listed) {
    loop_pair two;
    two.server.define_any([](const raw_call& call) { return raw_values{{}, call.values_as()}; });
    const peer there = two.there();
    two.in_client([&] { two.client.procedure<void()>("made up").on(there)(); });
    EXPECT_TRUE(describe(two.server).empty());
}

TEST(health, is_what_the_engine_says) {
    loop_pair two;
    const peer there = two.there();
    const auto ask = [&] { return two.in_client([&] { return health_of(two.client, there); }); };
    EXPECT_TRUE(ask().serving);
    EXPECT_EQ(ask().running, 0u);
    set_health(two.server, false, "the disk is full");
    const engine_health now = ask();
    EXPECT_FALSE(now.serving);
    EXPECT_EQ(now.sentence, "the disk is full");
    set_health(two.server, true);
    EXPECT_TRUE(ask().serving);
}

class shelf {
public:
    explicit shelf(bool& destroyed) : destroyed_(destroyed) {}
    ~shelf() { destroyed_ = true; }
    void put(std::string book) { books_.push_back(std::move(book)); }
    const std::vector<std::string>& books() const noexcept { return books_; }
    void count(responder<std::size_t> answer) { answer(books_.size()); }
    void each(stream_writer<std::string>& out) const {
        for (const std::string& one : books_)
            out(one);
    }
    void slow() { this_task::sleep_for(std::chrono::hours(1)); }

private:
    bool& destroyed_;
    std::vector<std::string> books_;
};

TEST(object_provider, serves_member_functions_of_its_object_under_its_id) {
    loop_pair two;
    bool destroyed = false;
    const peer there = two.there();
    provider<shelf> mine(two.server, "shelf", std::make_shared<shelf>(destroyed), {.provider = 3});
    provider<shelf> other(two.server, "shelf", std::make_shared<shelf>(destroyed), {.provider = 4});
    for (provider<shelf>* one : {&mine, &other}) {
        one->define("put", &shelf::put, "Adds a book.");
        one->define("books", &shelf::books);
        one->define("count", &shelf::count);
        one->define("each", &shelf::each);
    }
    two.in_client([&] {
        two.client.procedure<void(std::string)>("put").on(there, 3)("Ulysses");
        const auto books = two.client.procedure<std::vector<std::string>()>("books");
        EXPECT_EQ(books.on(there, 3)(), std::vector<std::string>{"Ulysses"});
        EXPECT_TRUE(books.on(there, 4)().empty());
        EXPECT_EQ(two.client.procedure<std::size_t()>("count").on(there, 3)(), 1u);
        int number = 0;
        for (const std::string& book :
             two.client.procedure<streamed<std::string>()>("each").on(there, 3)())
            number += book == "Ulysses";
        EXPECT_EQ(number, 1);
        EXPECT_EQ(identity_of(two.client, there, 3), "shelf");
        EXPECT_EQ(identity_of(two.client, there, 5), "");
    });
    EXPECT_TRUE(mine.undefine("each"));
    EXPECT_FALSE(mine.undefine("each"));
    EXPECT_EQ(describe(two.server).front().about, "Adds a book.");
}

TEST(object_provider, an_id_has_one_identity_at_a_time) {
    loop_pair two;
    bool destroyed = false;
    const auto make = [&](std::string_view identity, std::shared_ptr<shelf> object) {
        provider<shelf> one(two.server, identity, std::move(object), {.provider = 1});
    };
    {
        provider<shelf> mine(two.server, "shelf", std::make_shared<shelf>(destroyed),
                             {.provider = 1});
        const error why = error_of([&] { make("rack", std::make_shared<shelf>(destroyed)); });
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_NE(std::string(why.what()).find("provider 1 cannot be \"rack\""), std::string::npos);
    }
    make("rack", std::make_shared<shelf>(destroyed));
    EXPECT_EQ(error_of([&] { make("", std::make_shared<shelf>(destroyed)); }).code(),
              errc::invalid);
    EXPECT_EQ(error_of([&] { make("rack", nullptr); }).code(), errc::invalid);
}

TEST(object_provider, undefines_only_what_it_has_defined) {
    loop_pair two;
    bool destroyed = false;
    const peer there = two.there();
    two.server.define("count", [] { return std::size_t{77}; }, {.provider = 3});
    auto mine = std::make_unique<provider<shelf>>(
        two.server, "shelf", std::make_shared<shelf>(destroyed), procedure_options{.provider = 3});
    EXPECT_EQ(error_of([&] { mine->define("count", &shelf::count); }).code(), errc::invalid);
    EXPECT_FALSE(mine->undefine("count"));
    mine->define("books", &shelf::books);
    EXPECT_TRUE(two.server.undefine("books", 3));
    two.server.define("books", [] { return std::vector<std::string>{"mine"}; }, {.provider = 3});
    mine.reset();
    two.in_client([&] {
        EXPECT_EQ(two.client.procedure<std::size_t()>("count").on(there, 3)(), 77u);
        EXPECT_EQ(two.client.procedure<std::vector<std::string>()>("books").on(there, 3)(),
                  std::vector<std::string>{"mine"});
    });
}

TEST(object_provider, its_object_lives_until_the_last_call_has_ended) {
    loop_pair two;
    bool destroyed = false;
    const peer there = two.there();
    auto mine =
        std::make_unique<provider<shelf>>(two.server, "shelf", std::make_shared<shelf>(destroyed));
    mine->define("slow", &shelf::slow);
    auto slow = two.client.procedure<void()>("slow").on(there).start();
    two.net.run_for(std::chrono::milliseconds(1));
    mine.reset();
    EXPECT_FALSE(destroyed);
    two.net.run_until_idle();
    EXPECT_TRUE(slow.wait().ok());
    EXPECT_TRUE(destroyed);
}

}  // namespace
}  // namespace amalgam
