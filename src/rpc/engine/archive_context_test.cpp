#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

struct names {
    std::vector<std::string> all;
};

/// Travels as a number, by a table that both ends have.
struct word {
    std::string text;

    template <typename Archive>
    void serialize(Archive& a) {
        const names* const known = a.template context<names>();
        std::uint32_t number = 0;
        if constexpr (!Archive::loading) {
            while (known != nullptr && known->all.at(number) != text)
                ++number;
        }
        a(number);
        if constexpr (Archive::loading) {
            text = known == nullptr ? "nobody knows" : known->all.at(number);
        }
    }
};

TEST(archive_context, serializers_see_the_object_of_their_engine) {
    loop_network net;
    const auto table = std::make_shared<names>(names{{"zero", "one", "two"}});
    engine server{net.port("server"), {.context = table}};
    engine client{net.port("client"), {.context = table}};
    engine other{net.port("other"), {.context = std::make_shared<int>(1)}};
    const auto next = [](const word& from) { return word{from.text == "one" ? "two" : "zero"}; };
    server.define("next", next);
    other.define("next", [](const word& from) { return from.text; });
    auto done = client.spawn([&] {
        EXPECT_EQ(client.procedure<word(word)>("next").on(server.address())({"one"}).text, "two");
        EXPECT_EQ(client.procedure<std::string(word)>("next").on(other.address())({"one"}),
                  "nobody knows");
    });
    net.run_until_idle();
    done.get();
    const archive_context fixed(std::shared_ptr<const names>{table});
    EXPECT_EQ(fixed.get<const names>(), table.get());
    EXPECT_EQ(fixed.get<names>(), nullptr);
    EXPECT_EQ(archive_context(table).get<const names>(), table.get());
    body alone;
    archive_writer to(alone);
    EXPECT_EQ(to.context<names>(), nullptr);
}

}  // namespace
}  // namespace amalgam
