/* Gloo's device, whose connections can be closed while Gloo makes them. Without that, Gloo waits five times
 * the join timeout for a peer that published its address and died. C++, for the shim alone. */
#ifndef LKI_COMM_GLOO_GLOO_DEVICE_H
#define LKI_COMM_GLOO_GLOO_DEVICE_H

#include <gloo/transport/device.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

class WatchedDevice : public gloo::transport::Device
{
  public:
    explicit WatchedDevice(std::shared_ptr<gloo::transport::Device> inner) : inner_(std::move(inner))
    {
    }
    std::string str() const override
    {
        return inner_->str();
    }
    const std::string &getPCIBusID() const override
    {
        return inner_->getPCIBusID();
    }
    int getInterfaceSpeed() const override
    {
        return inner_->getInterfaceSpeed();
    }
    bool hasGPUDirect() const override
    {
        return inner_->hasGPUDirect();
    }
    std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override
    {
        std::lock_guard<std::mutex> hold(lock_);
        rank_ = rank;
        size_ = size;
        connecting_ = inner_->createContext(rank, size);
        return connecting_;
    }
    /* All of the context's pairs exist: from here on another thread may close them. */
    void pairs_are_made()
    {
        std::lock_guard<std::mutex> hold(lock_);
        has_pairs_ = true;
        throw_if_ended();
    }
    /* To be called between Gloo's waits. */
    void check()
    {
        std::lock_guard<std::mutex> hold(lock_);
        throw_if_ended();
    }
    /* Gloo is connected: nothing is closed any more. */
    void release()
    {
        std::lock_guard<std::mutex> hold(lock_);
        throw_if_ended();
        connecting_.reset();
    }
    /* Any thread: whoever waits for a connection fails now. */
    void end() noexcept
    {
        std::lock_guard<std::mutex> hold(lock_);
        if (ended_) return;
        ended_ = true;
        for (int rank = 0; has_pairs_ && connecting_ && rank < size_; rank++)
            if (rank != rank_) close_pair(rank);
    }

  private:
    void close_pair(int rank)
    {
        try {
            connecting_->getPair(rank)->close();
        } catch (...) { /* a pair that cannot be closed has failed by itself */
        }
    }
    void throw_if_ended() const
    {
        if (ended_) throw std::runtime_error("the job has failed meanwhile");
    }

    std::shared_ptr<gloo::transport::Device> inner_;
    std::shared_ptr<gloo::transport::Context> connecting_;
    std::mutex lock_; /* over all below */
    bool ended_ = false, has_pairs_ = false;
    int rank_ = 0, size_ = 0;
};

#endif
