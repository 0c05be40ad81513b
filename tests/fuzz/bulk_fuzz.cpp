#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/origin.hpp>

#include "fuzz/fuzz.hpp"

// Descriptors from strangers: refused, or naming existing memory.
namespace amalgam::fuzz {

namespace {

struct world {
    loop_network net;
    engine server{net.port("server")}, client{net.port("client")};
    std::array<std::byte, 4000> memory{};
    exposed shown = expose(client, memory, access::read);
    peer from = server.lookup(client.address());
    peer to = client.lookup(server.address());
};

world& here() {
    static world only;
    return only;
}

}  // namespace

void run_one(const_bytes input) {
    world& w = here();
    const detail::origin between{&w.server.core(), w.from};
    archive_reader reader(input, encoding::native, &between);
    bulk got;
    reader(got);
    if (!reader.ok()) return require(!got, "what is refused names nothing");
    require(got.part(0, got.bytes()).bytes() == got.bytes(), "all of it is a part");
    std::vector<std::byte> into(
        static_cast<std::size_t>(std::min<std::uint64_t>(got.bytes(), std::uint64_t{8192})));
    auto pull = got.start_pull(into);
    auto push = got.start_push(into);
    w.net.run_until_idle();
    require(pull.ready() && push.ready(), "every transfer ends");
    require(push.wait() != errc::ok || into.empty() || got.is_inside(), "nobody may write");
    body again;
    try {
        archive_writer(again, encoding::native, &between)(got);
    } catch (const error& why) {
        require(why.code() == errc::invalid, "it cannot be passed on");
        return;
    }
    archive_reader second(again.bytes(), encoding::native, &between);
    bulk same;
    second(same);
    require(second.ok() && same.bytes() == got.bytes(), "what was written can be read");
}

std::span<const std::string_view> seeds() {
    static const std::vector<std::string> texts = [] {
        world& w = here();
        const detail::origin between{&w.client.core(), w.to};
        std::vector<std::string> made;
        for (const bulk& each : {bulk(w.shown), w.shown.descriptor().part(1000, 2000),
                                 w.shown.descriptor().part(0, 10), bulk()}) {
            for (const detail::origin* known :
                 {&between, static_cast<const detail::origin*>(nullptr)}) {
                body into;
                archive_writer(into, encoding::native, known)(each);
                made.emplace_back(reinterpret_cast<const char*>(into.bytes().data()), into.size());
            }
        }
        return made;
    }();
    static const std::vector<std::string_view> views(texts.begin(), texts.end());
    return views;
}

}  // namespace amalgam::fuzz
