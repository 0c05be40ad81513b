// gRPC's asynchronous unary calls as in generated code, but with plain bytes: no protobuf. One
// thread per side waits for its completion queue by polling or asleep: polling answers sooner,
// sleeping leaves the processor to gRPC's own threads.
//   grpc poll|sleep tcp|tls|unix SIZE DEPTH SECONDS    DEPTH calls in flight
// tls: over tcp, both sides with certificates.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "bench_keys.hpp"
#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;

constexpr const char* method = "/bench.Bench/Count";

void check(const grpc::Status& status) {
    if (!status.ok()) throw error(errc::internal, "gRPC: " + status.error_message());
}

grpc::ByteBuffer bytes_of(const std::string& text) {
    const grpc::Slice slice(text);
    return grpc::ByteBuffer(&slice, 1);
}

enum class waiting { polling, asleep };

std::string text_of(const std::string& name) {
    std::ifstream file(key_folder("bench") + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(bool encrypted) {
    if (!encrypted) return grpc::InsecureServerCredentials();
    grpc::SslServerCredentialsOptions with(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    with.pem_root_certs = text_of("authority.pem");
    with.pem_key_cert_pairs.push_back({text_of("key.pem"), text_of("certificate.pem")});
    return grpc::SslServerCredentials(with);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(bool encrypted) {
    if (!encrypted) return grpc::InsecureChannelCredentials();
    return grpc::SslCredentials(
        {text_of("authority.pem"), text_of("key.pem"), text_of("certificate.pem")});
}

/// Tag of the next finished operation, or null if there is none yet.
void* next(grpc::CompletionQueue& queue, waiting how, bool& ok) {
    void* tag = nullptr;
    gpr_timespec until = gpr_time_0(GPR_CLOCK_MONOTONIC);
    if (how == waiting::asleep)
        until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(50, GPR_TIMESPAN));
    return queue.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::GOT_EVENT ? tag : nullptr;
}

/// The service, as protoc would generate it.
class count_service final : public grpc::Service {
public:
    using responder = grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>;

    count_service() {
        AddMethod(new grpc::internal::RpcServiceMethod(
            method, grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
        MarkMethodAsync(0);
    }
    void wait_for_call(grpc::ServerContext& context, grpc::ByteBuffer& request, responder& answer,
                       grpc::ServerCompletionQueue& queue, void* tag) {
        RequestAsyncUnary(0, &context, &request, &answer, &queue, &queue, tag);
    }
};

/// One call at a time at the server: waits for it, answers with four bytes, starts over.
class served_call {
public:
    served_call(count_service& service, grpc::ServerCompletionQueue& queue)
        : service_(service), queue_(queue) {
        wait();
    }
    void go_on(bool ok) {
        if (answered_) {
            wait();
        } else if (ok) {
            answered_ = true;
            answer_->Finish(result_, grpc::Status::OK, this);
        }
    }

private:
    void wait() {
        answered_ = false;
        answer_.reset();
        context_ = std::make_unique<grpc::ServerContext>();
        answer_ = std::make_unique<count_service::responder>(context_.get());
        service_.wait_for_call(*context_, request_, *answer_, queue_, this);
    }

    count_service& service_;
    grpc::ServerCompletionQueue& queue_;
    std::unique_ptr<grpc::ServerContext> context_;
    std::unique_ptr<count_service::responder> answer_;
    grpc::ByteBuffer request_;
    const grpc::ByteBuffer result_ = bytes_of("done");
    bool answered_ = false;
};

/// Serves until the measuring process closes the channel, and ends with it.
[[noreturn]] void serve(perf::channel& talk, const std::string& address, std::size_t depth,
                        waiting how, bool encrypted) {
    count_service service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, server_credentials(encrypted), &port);
    builder.RegisterService(&service);
    const auto queue = builder.AddCompletionQueue();
    const auto server = builder.BuildAndStart();
    if (!server) throw error(errc::invalid, "gRPC could not listen at " + address);
    std::vector<std::unique_ptr<served_call>> calls;
    for (std::size_t i = 0; i < 2 * depth; ++i)
        calls.push_back(std::make_unique<served_call>(service, *queue));
    talk.write_line(port > 1 ? "127.0.0.1:" + std::to_string(port) : address);
    for (unsigned idle = 0;;) {
        bool ok = false;
        if (void* tag = next(*queue, how, ok)) {
            static_cast<served_call*>(tag)->go_on(ok);
        } else if ((how == waiting::asleep || ++idle % 1024 == 0) && talk.closed()) {
            ::_exit(0);
        }
    }
}

/// One call after the other at the client.
struct made_call {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
    grpc::ByteBuffer result;
    grpc::Status status;
};

class client {
public:
    client(const std::string& address, std::size_t size, waiting how, bool encrypted)
        : how_(how),
          stub_(grpc::CreateChannel(address, channel_credentials(encrypted))),
          request_(bytes_of(std::string(size, 'x'))) {}

    void start(made_call& call) {
        call.reader.reset();
        call.context = std::make_unique<grpc::ClientContext>();
        call.reader = stub_.PrepareUnaryCall(call.context.get(), method, request_, &queue_);
        call.reader->StartCall();
        call.reader->Finish(&call.result, &call.status, &call);
    }
    made_call& wait() {
        for (;;) {
            bool ok = false;
            if (void* tag = next(queue_, how_, ok)) {
                auto& call = *static_cast<made_call*>(tag);
                check(call.status);
                return call;
            }
        }
    }

private:
    const waiting how_;
    grpc::GenericStub stub_;
    const grpc::ByteBuffer request_;
    grpc::CompletionQueue queue_;
};

perf::measurement latency(client& me, double seconds) {
    made_call call;
    return perf::measure_round_trips(seconds, [&] {
        me.start(call);
        me.wait();
    });
}

perf::measurement rate(client& me, std::size_t depth, double seconds) {
    std::vector<made_call> calls(depth);
    for (made_call& call : calls)
        me.start(call);
    std::uint64_t done = 0;
    const auto run_for = [&](double time) {
        done = 0;
        const auto begin = perf::clock_type::now();
        do {
            for (int batch = 0; batch < 64; ++batch)
                me.start(me.wait());
            done += 64;
        } while (perf::seconds_since(begin) < time);
        return perf::seconds_since(begin);
    };
    run_for(seconds * 0.2);
    const double elapsed = run_for(seconds * 0.8);
    for (std::size_t i = 0; i < depth; ++i)
        me.wait();
    perf::measurement m;
    m.ops_per_s = static_cast<double>(done) / elapsed;
    m.depth = depth;
    return m;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view how = argc == 6 ? argv[1] : "";
    const std::string_view over = argc == 6 ? argv[2] : "";
    const bool encrypted = over == "tls";
    if ((how != "poll" && how != "sleep") || (over != "tcp" && over != "unix" && !encrypted)) {
        std::fprintf(stderr, "usage: %s poll|sleep tcp|tls|unix SIZE DEPTH SECONDS\n", argv[0]);
        return 2;
    }
    const waiting wait = how == "poll" ? waiting::polling : waiting::asleep;
    const auto size = static_cast<std::size_t>(std::atoll(argv[3]));
    const auto depth = static_cast<std::size_t>(std::atoll(argv[4]));
    const double seconds = std::atof(argv[5]);
    const std::string address = over != "unix"
                                    ? "127.0.0.1:0"
                                    : "unix-abstract:amalgam-bench-" + std::to_string(::getpid());
    try {
        std::optional<bench::bench_keys> keys;
        if (encrypted) keys.emplace(key_algorithm::p256);
        perf::forked_peer peer(
            [&](perf::channel& talk) { serve(talk, address, depth, wait, encrypted); });
        client me(peer.talk().read_line(), size, wait, encrypted);
        auto m = depth == 1 ? latency(me, seconds) : rate(me, depth, seconds);
        m.test = depth == 1 ? "rpc-latency" : "rpc-rate";
        m.uri = "grpc+" + std::string(over);
        m.size_bytes = size;
        m.bytes_per_s = m.ops_per_s * static_cast<double>(size);
        std::puts(perf::to_json(m).c_str());
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
