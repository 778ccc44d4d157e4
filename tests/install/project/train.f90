! One layer, one batch. With an argument: a mistake, which stops the program with a sentence.
program train
    use lockstep
    implicit none
    real, target :: x(4, 8), y(2, 8)
    type(lk_model) :: net
    type(lk_step) :: step
    call random_number(x)
    y = x(1:2, :)
    call net%linear(4, 2)
    if (command_argument_count() > 0) call net%add('Nothing')
    call step%create(net, loss='MSELoss', optimizer='Adam', device='cpu')
    call step%train(lk_tensor(x), lk_tensor(y))
    if (.not. step%loss() > 0) error stop 'there is no loss'
end program
