// Memory of two connected shm ports, both in this process, in KiB.
//   shm_pair calm    once 100,000 small messages went each way, one by one
//   shm_pair busy    once both rings between them were full
#include <array>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include <amalgam/fabric/transport.hpp>

#include "counted_arrivals.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;

struct end {
    std::unique_ptr<port> at = transport_registry::native().open("shm://").value();
    bench::arrivals got;
    peer_id other;
};

class two_ports {
public:
    two_ports() {
        for (end* each : {&left_, &right_})
            each->at->set_sink(&each->got);
        left_.other = left_.at->lookup(right_.at->address()).value();
    }

    void talk() {
        constexpr int messages = 100'000;
        const std::array<std::byte, 8> bytes{};
        const_bytes small(bytes);
        for (int i = 0; i < messages; ++i) {
            send(left_, small);
            receive(right_);
            right_.other = right_.got.from;
            send(right_, small);
            receive(left_);
        }
    }

    /// Both directions, one after the other, as the reader does not look.
    void fill() {
        const std::vector<std::byte> bytes(1024);
        for (end* from : {&left_, &right_}) {
            end& to = from == &left_ ? right_ : left_;
            std::size_t expected = to.got.count;
            posted how = posted::done;
            while (how == posted::done) {
                how = post(*from, bytes);
                if (how != posted::full) ++expected;
            }
            while (to.got.count < expected)
                progress();
        }
    }

private:
    posted post(end& from, const_bytes bytes) {
        return from.at->post_send(from.other, 1, gather(&bytes, 1), op_);
    }
    void send(end& from, const_bytes bytes) {
        while (post(from, bytes) == posted::full)
            from.at->progress();
    }
    void receive(end& to) {
        const std::size_t before = to.got.count;
        while (to.got.count == before)
            progress();
    }
    void progress() {
        left_.at->progress();
        right_.at->progress();
    }

    bench::copied_send op_;
    end left_, right_;
};

double kibibytes_of(bool busy) {
    { two_ports first; }  // What the process keeps for all of them is not theirs.
    const std::size_t before = bench::own_and_shared_bytes();
    two_ports both;
    both.talk();
    if (busy) both.fill();
    return static_cast<double>(bench::own_and_shared_bytes() - before) / 1024;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc == 2 ? argv[1] : "";
    if (what != "calm" && what != "busy") {
        std::fprintf(stderr, "usage: %s calm|busy\n", argv[0]);
        return 2;
    }
    try {
        std::printf("{\"test\": \"%s\", \"value\": %.6g}\n", argv[1], kibibytes_of(what == "busy"));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
