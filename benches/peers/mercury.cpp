// Mercury's calls with callbacks, both ends polling, no threads.
//   mercury latency na+sm|ofi+tcp SIZE DEPTH SECONDS    one call at a time, whatever DEPTH
//   mercury rate    na+sm|ofi+tcp SIZE DEPTH SECONDS    DEPTH calls in flight
//   mercury bulk    na+sm|ofi+tcp SIZE DEPTH SECONDS    DEPTH pulls in flight, from heap to heap
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <mercury.h>
#include <mercury_bulk.h>
#include <mercury_proc_bulk.h>

#include <amalgam/core/status.hpp>

#include "peers/na_questions.hpp"

namespace {

using namespace amalgam;

void check(hg_return_t result, const char* what) {
    if (result != HG_SUCCESS)
        throw error(errc::internal, std::string(what) + ": " + HG_Error_to_string(result));
}

/// Payload of a call: both processes know its size from the command line.
using payload = std::vector<char>;

hg_return_t code_payload(hg_proc_t how, void* data) {
    auto& bytes = *static_cast<payload*>(data);
    return hg_proc_raw(how, bytes.data(), bytes.size());
}

/// One Mercury instance of a process. Finalizes it, since na+sm would leave files behind.
struct node {
    hg_class_t* self = nullptr;
    hg_context_t* context = nullptr;
    hg_id_t count = 0;
    hg_id_t show = 0;
    payload bytes;
    hg_bulk_t memory = HG_BULK_NULL;

    node(const std::string& uri, bool listens, std::size_t size);
    node(const node&) = delete;
    node& operator=(const node&) = delete;
    ~node() {
        if (memory != HG_BULK_NULL) HG_Bulk_free(memory);
        if (context != nullptr) HG_Context_destroy(context);
        if (self != nullptr) HG_Finalize(self);
    }
    /// Whether anything happened.
    bool progress() {
        unsigned ready = 0;
        if (HG_Event_progress(context, &ready) != HG_SUCCESS || ready == 0) return false;
        unsigned done = 0;
        check(HG_Event_trigger(context, ready, &done), "HG_Event_trigger");
        return done != 0;
    }
    hg_bulk_t map(payload& of) {
        void* at = of.data();
        const hg_size_t size = of.size();
        hg_bulk_t mapped = HG_BULK_NULL;
        check(HG_Bulk_create(self, 1, &at, &size, HG_BULK_READWRITE, &mapped), "HG_Bulk_create");
        return mapped;
    }
};

node& node_of(hg_handle_t call) {
    const hg_info* facts = HG_Get_info(call);
    return *static_cast<node*>(HG_Registered_data(facts->hg_class, facts->id));
}

hg_return_t serve_count(hg_handle_t call) {
    node& me = node_of(call);
    check(HG_Get_input(call, &me.bytes), "HG_Get_input");
    auto answer = static_cast<std::uint32_t>(me.bytes.size());
    check(HG_Free_input(call, &me.bytes), "HG_Free_input");
    check(HG_Respond(call, nullptr, nullptr, &answer), "HG_Respond");
    return HG_Destroy(call);
}

hg_return_t serve_show(hg_handle_t call) {
    check(HG_Respond(call, nullptr, nullptr, &node_of(call).memory), "HG_Respond");
    return HG_Destroy(call);
}

node::node(const std::string& uri, bool listens, std::size_t size) : bytes(size, 'x') {
    hg_init_info how{};
    how.na_init_info.max_contexts = 1;
    how.na_init_info.progress_mode = NA_NO_BLOCK;
    how.na_init_info.thread_mode = NA_THREAD_MODE_SINGLE;
    self = HG_Init_opt2(uri.c_str(), listens, HG_VERSION(HG_VERSION_MAJOR, HG_VERSION_MINOR), &how);
    if (self == nullptr) throw error(errc::invalid, "Mercury could not open \"" + uri + "\"");
    context = HG_Context_create(self);
    if (context == nullptr) throw error(errc::no_memory, "HG_Context_create failed");
    count = HG_Register_name(self, "count", code_payload, hg_proc_uint32_t, serve_count);
    show = HG_Register_name(self, "show", nullptr, hg_proc_hg_bulk_t, serve_show);
    for (const hg_id_t id : {count, show})
        check(HG_Register_data(self, id, this, nullptr), "HG_Register_data");
}

/// Serves until the measuring process closes the channel, and ends with it.
void serve(const std::string& uri, std::size_t size, perf::channel& talk) {
    node me(uri, true, size);
    payload memory(size, 'y');
    me.memory = me.map(memory);
    hg_addr_t mine = HG_ADDR_NULL;
    check(HG_Addr_self(me.self, &mine), "HG_Addr_self");
    char text[256];
    hg_size_t room = sizeof text;
    check(HG_Addr_to_string(me.self, text, &room, mine), "HG_Addr_to_string");
    HG_Addr_free(me.self, mine);
    talk.write_line(text);
    for (unsigned idle = 0;;)
        if (!me.progress() && ++idle % (1u << 16) == 0 && talk.closed()) return;
}

/// An operation in flight at the client, started again and again.
struct operation {
    operation() = default;
    operation(operation&& other) noexcept : call(std::exchange(other.call, HG_HANDLE_NULL)) {}
    ~operation() {
        if (into != HG_BULK_NULL) HG_Bulk_free(into);
        if (call != HG_HANDLE_NULL) HG_Destroy(call);
    }

    hg_handle_t call = HG_HANDLE_NULL;
    hg_bulk_t into = HG_BULK_NULL;
    payload memory;
    bool done = true;
    hg_return_t result = HG_SUCCESS;
};

class client {
public:
    client(const std::string& uri, const std::string& address, std::size_t size)
        : me_(uri, false, size) {
        check(HG_Addr_lookup2(me_.self, address.c_str(), &there_), "HG_Addr_lookup2");
    }
    client(const client&) = delete;
    client& operator=(const client&) = delete;
    ~client() {
        if (remote_ != HG_BULK_NULL) HG_Free_output(shown_.call, &remote_);
        if (shown_.call != HG_HANDLE_NULL) HG_Destroy(std::exchange(shown_.call, HG_HANDLE_NULL));
        HG_Addr_free(me_.self, there_);
    }

    std::vector<operation> operations(std::size_t depth) {
        std::vector<operation> all(depth);
        for (operation& each : all)
            check(HG_Create(me_.context, there_, me_.count, &each.call), "HG_Create");
        return all;
    }
    void start_call(operation& one) {
        one.done = false;
        check(HG_Forward(one.call, &client::answered, &one, &me_.bytes), "HG_Forward");
    }
    void wait(const operation& one) {
        while (!one.done)
            me_.progress();
        check(one.result, "a call or a pull");
    }

    /// Gets the server's memory, and allocates some for each.
    void prepare_pulls(std::vector<operation>& all) {
        check(HG_Create(me_.context, there_, me_.show, &shown_.call), "HG_Create");
        shown_.done = false;
        check(HG_Forward(shown_.call, &client::ended, &shown_, nullptr), "HG_Forward");
        wait(shown_);
        check(HG_Get_output(shown_.call, &remote_), "HG_Get_output");
        for (operation& each : all) {
            each.memory.assign(me_.bytes.size(), 0);
            each.into = me_.map(each.memory);
        }
    }
    void start_pull(operation& one) {
        one.done = false;
        check(HG_Bulk_transfer(me_.context, &client::ended, &one, HG_BULK_PULL, there_, remote_, 0,
                               one.into, 0, one.memory.size(), HG_OP_ID_IGNORE),
              "HG_Bulk_transfer");
    }

private:
    static hg_return_t ended(const hg_cb_info* what) {
        auto& one = *static_cast<operation*>(what->arg);
        one.result = what->ret;
        one.done = true;
        return HG_SUCCESS;
    }
    static hg_return_t answered(const hg_cb_info* what) {
        if (what->ret == HG_SUCCESS) {
            std::uint32_t answer = 0;
            check(HG_Get_output(what->info.forward.handle, &answer), "HG_Get_output");
            check(HG_Free_output(what->info.forward.handle, &answer), "HG_Free_output");
        }
        return ended(what);
    }

    node me_;
    hg_addr_t there_ = HG_ADDR_NULL;
    operation shown_;
    hg_bulk_t remote_ = HG_BULK_NULL;
};

/// Keeps all of them in flight; returns completions per second.
template <typename Start>
double rate(client& me, std::vector<operation>& all, double seconds, Start&& start) {
    std::uint64_t done = 0;
    const auto run_for = [&](double time) {
        done = 0;
        const auto begin = perf::clock_type::now();
        do {
            for (operation& each : all) {
                me.wait(each);
                start(each);
                ++done;
            }
        } while (perf::seconds_since(begin) < time);
        return perf::seconds_since(begin);
    };
    run_for(seconds * 0.2);
    const double elapsed = run_for(seconds * 0.8);
    for (const operation& each : all)
        me.wait(each);
    return static_cast<double>(done) / elapsed;
}

perf::measurement measure(const bench::na_question& asked, const std::string& address) {
    client me(asked.uri, address, asked.size);
    std::vector<operation> all = me.operations(asked.depth);
    perf::measurement m;
    if (asked.test == "latency") {
        m = perf::measure_round_trips(asked.seconds, [&] {
            me.start_call(all[0]);
            me.wait(all[0]);
        });
    } else if (asked.test == "rate") {
        m.ops_per_s = rate(me, all, asked.seconds, [&](operation& one) { me.start_call(one); });
    } else {
        me.prepare_pulls(all);
        m.ops_per_s = rate(me, all, asked.seconds, [&](operation& one) { me.start_pull(one); });
    }
    return m;
}

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_na(argc, argv, "mercury", &serve, &measure);
}
