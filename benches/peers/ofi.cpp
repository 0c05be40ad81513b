// Bare libfabric: tagged messages one round trip or one batch at a time, and one-sided transfers to
// a polling peer, one or several in flight, over its provider shm or tcp.
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <amalgam/core/status.hpp>

#include "peers/peer.hpp"

namespace {

using namespace amalgam;
using bench::peer_question;

void check(long code, const char* what) {
    if (code < 0)
        throw error(errc::internal,
                    fmt::format("{}: {}", what, fi_strerror(static_cast<int>(-code))));
}

/// State of one operation in flight: the provider may use `context` until it completes.
struct operation {
    fi_context2 context{};
    bool busy = false;
};

/// A connectionless endpoint, and the address of the other one. The endpoint must be closed: it has
/// a file that a later process with the same id would find. Everything else ends with the process.
class endpoint {
public:
    explicit endpoint(const peer_question& asked) {
        fi_info* hints = fi_allocinfo();
        hints->caps = asked.messages() ? FI_TAGGED : FI_RMA | FI_MSG;
        hints->mode = FI_CONTEXT | FI_CONTEXT2;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->threading = FI_THREAD_DOMAIN;
        hints->domain_attr->mr_mode =
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints->tx_attr->op_flags = asked.delivered ? FI_DELIVERY_COMPLETE : 0;
        hints->fabric_attr->prov_name = ::strdup(asked.over.c_str());
        const bool tcp = asked.over == "tcp";
        check(fi_getinfo(FI_VERSION(1, 9), tcp ? "127.0.0.1" : nullptr, tcp ? "0" : nullptr,
                         tcp ? FI_SOURCE : 0, hints, &info_),
              ("fi_getinfo, provider " + asked.over).c_str());
        fi_freeinfo(hints);
        fid_fabric* fabric = nullptr;
        check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
        check(fi_domain(fabric, info_, &domain_, nullptr), "fi_domain");
        fi_cq_attr queue{};
        queue.format = FI_CQ_FORMAT_CONTEXT;
        queue.wait_obj = FI_WAIT_NONE;
        check(fi_cq_open(domain_, &queue, &done_, nullptr), "fi_cq_open");
        fi_av_attr table{};
        table.type = FI_AV_TABLE;
        check(fi_av_open(domain_, &table, &peers_, nullptr), "fi_av_open");
        check(fi_endpoint(domain_, info_, &self_, nullptr), "fi_endpoint");
        check(fi_ep_bind(self_, &done_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
        check(fi_ep_bind(self_, &peers_->fid, 0), "fi_ep_bind");
        check(fi_enable(self_), "fi_enable");
    }
    endpoint(const endpoint&) = delete;
    endpoint& operator=(const endpoint&) = delete;
    ~endpoint() { fi_close(&self_->fid); }

    std::string address() {
        char bytes[512];
        std::size_t length = sizeof bytes;
        check(fi_getname(&self_->fid, bytes, &length), "fi_getname");
        return bench::to_hex(bytes, length);
    }
    void connect(const std::string& hex) {
        const std::string bytes = bench::from_hex(hex);
        if (fi_av_insert(peers_, bytes.data(), 1, &peer_, 0, nullptr) != 1)
            throw error(errc::internal, "fi_av_insert: the peer's address was rejected");
    }

    fid_mr* map(std::vector<char>& memory, std::uint64_t key) {
        fid_mr* region = nullptr;
        check(fi_mr_reg(domain_, memory.data(), memory.size(),
                        FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
                        0, key, 0, &region, nullptr),
              "fi_mr_reg");
        return region;
    }
    /// Remote address of the start of `memory`.
    std::uint64_t offset_of(const std::vector<char>& memory) const {
        return (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0
                   ? reinterpret_cast<std::uint64_t>(memory.data())
                   : 0;
    }

    /// Retries `post(context)` until accepted.
    template <typename Post>
    void start(operation& op, Post&& post) {
        op.busy = true;
        for (;;) {
            const long code = post(&op.context);
            if (code == 0) return;
            if (code != -FI_EAGAIN) check(code, "posting");
            progress();
        }
    }
    void send(operation& op, const std::vector<char>& bytes, fid_mr* region) {
        if (bytes.size() <= info_->tx_attr->inject_size)
            start(op,
                  [&](void*) { return fi_tinject(self_, bytes.data(), bytes.size(), peer_, 1); }),
                op.busy = false;
        else
            start(op, [&](void* context) {
                return fi_tsend(self_, bytes.data(), bytes.size(), fi_mr_desc(region), peer_, 1,
                                context);
            });
    }
    void receive(operation& op, std::vector<char>& into, fid_mr* region) {
        start(op, [&](void* context) {
            return fi_trecv(self_, into.data(), into.size(), fi_mr_desc(region), FI_ADDR_UNSPEC, 1,
                            0, context);
        });
    }
    void transfer(operation& op, bool put, std::vector<char>& here, fid_mr* region,
                  std::uint64_t there, std::uint64_t key) {
        start(op, [&](void* context) {
            return put ? fi_write(self_, here.data(), here.size(), fi_mr_desc(region), peer_, there,
                                  key, context)
                       : fi_read(self_, here.data(), here.size(), fi_mr_desc(region), peer_, there,
                                 key, context);
        });
    }

    bool progress() {
        fi_cq_entry ended[8];
        const long count = fi_cq_read(done_, ended, std::size(ended));
        if (count == -FI_EAVAIL) {
            fi_cq_err_entry why{};
            fi_cq_readerr(done_, &why, 0);
            check(-why.err, "an operation");
        }
        for (long i = 0; i < count; ++i)
            static_cast<operation*>(ended[i].op_context)->busy = false;
        return count > 0;
    }
    void finish(const operation& op) {
        while (op.busy)
            progress();
    }

private:
    fi_info* info_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_cq* done_ = nullptr;
    fid_av* peers_ = nullptr;
    fid_ep* self_ = nullptr;
    fi_addr_t peer_ = FI_ADDR_UNSPEC;
};

/// How many messages there are for one answer.
std::size_t batch_of(const peer_question& asked) {
    return asked.is("message-rate") ? asked.depth : 1;
}

/// Only the last of a batch is answered, with one byte.
void answer_messages(const peer_question& asked, endpoint& me, perf::channel& talk) {
    const std::size_t batch = batch_of(asked);
    std::vector<std::vector<char>> into(batch, std::vector<char>(asked.size));
    std::vector<fid_mr*> regions;
    for (std::vector<char>& one : into)
        regions.push_back(me.map(one, 1 + regions.size()));
    std::vector<char> answer(batch == 1 ? asked.size : 1);
    fid_mr* answers = me.map(answer, 1 + batch);
    std::vector<operation> received(batch);
    operation sent;
    for (std::size_t i = 0; i < batch; ++i)
        me.receive(received[i], into[i], regions[i]);
    talk.write_line("ready");
    std::size_t next = 0;
    bench::serve_until_closed(talk, [&] {
        me.progress();
        if (received[next].busy) return false;
        me.receive(received[next], into[next], regions[next]);
        next = (next + 1) % batch;
        if (next != 0) return true;
        me.finish(sent);
        me.send(sent, answer, answers);
        return true;
    });
}

void serve(const peer_question& asked, endpoint& me, perf::channel& talk) {
    if (asked.messages()) return answer_messages(asked, me, talk);
    std::vector<char> memory(asked.size);
    fid_mr* region = me.map(memory, 1);
    talk.write_line(std::to_string(me.offset_of(memory)));
    talk.write_line(std::to_string(fi_mr_key(region)));
    bench::serve_until_closed(talk, [&] { return me.progress(); });
}

perf::measurement round_trips(const peer_question& asked, endpoint& me, perf::channel& talk) {
    talk.read_line();
    std::vector<char> bytes(asked.size), into(asked.size);
    fid_mr* region = me.map(bytes, 1);
    fid_mr* answers = me.map(into, 2);
    std::vector<operation> open(batch_of(asked));
    operation received;
    auto m = perf::measure_round_trips(asked.seconds, [&] {
        me.receive(received, into, answers);
        for (operation& sent : open) {
            me.finish(sent);
            me.send(sent, bytes, region);
        }
        me.finish(received);
    });
    m.ops_per_s *= static_cast<double>(open.size());
    return m;
}

perf::measurement transfers(const peer_question& asked, endpoint& me, perf::channel& talk) {
    const std::uint64_t there = std::stoull(talk.read_line());
    const std::uint64_t key = std::stoull(talk.read_line());
    std::vector<std::vector<char>> here(asked.depth, std::vector<char>(asked.size));
    std::vector<fid_mr*> regions;
    for (std::vector<char>& one : here)
        regions.push_back(me.map(one, 1 + regions.size()));
    std::vector<operation> open(asked.depth);
    std::size_t next = 0;
    auto m = perf::measure_round_trips(asked.seconds, asked.depth, [&] {
        me.finish(open[next]);
        me.transfer(open[next], asked.puts(), here[next], regions[next], there, key);
        next = (next + 1) % asked.depth;
    });
    for (const operation& one : open)
        me.finish(one);
    return m;
}

perf::measurement measure(const peer_question& asked, endpoint& me, perf::channel& talk) {
    return asked.messages() ? round_trips(asked, me, talk) : transfers(asked, me, talk);
}

}  // namespace

int main(int argc, char** argv) {
    // It allocates no memory of its own.
    if (bench::peer_question_of(argc, argv).block()) return bench::not_offered;
    return bench::answer_peer_by_address<endpoint>(argc, argv, "ofi", &serve, &measure);
}
