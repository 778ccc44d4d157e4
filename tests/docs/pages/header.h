/* <!-- expect: this sample does not compile -->
 *
 *     lk_optimizer *adam = lk_adam(.lrr = 0.02); */
